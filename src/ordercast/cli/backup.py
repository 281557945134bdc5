"""`ordercast backup | restore`: the history of a stopped site in one file, and back."""

from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.cli.live import HERE, ClusterFile
from ordercast.errors import InputError

if TYPE_CHECKING:
    from ordercast.live.config import Cluster


def _known(cluster: Path, site: str) -> "Cluster":
    from ordercast.live.config import read_cluster

    config = read_cluster(cluster)
    if not config.durable:
        raise InputError(f"{cluster}: durable = false: sites have no history")
    if config.policy == "fixed" and site not in config.sites:
        raise InputError(f"{cluster}: there is no site {site!r}")
    return config


def backup(site: str, file: Path, /, *, cluster: ClusterFile = HERE) -> int:
    """Write the history of a stopped site to a file.

    Every record is read and checked. A backup serves as long as the site has not been started again: the others know
    what it has said since, and refuse an older history by name. To keep a whole cluster, stop all its sites.

    Example: ordercast backup main-1 main-1.backup

    Parameters
    ----------
    site
        The site; it must not run.
    file
        Where to; it must not be there yet.
    cluster
        The configuration.

    """
    from ordercast.history.backup import back_up

    config = _known(cluster, site)
    identity, records = back_up(config.data_folder / site, file, config.name, site)
    print(f"{file}: {records:,} records of site {identity.site}, incarnation {identity.incarnation}")
    return 0


def restore(site: str, file: Path, /, *, cluster: ClusterFile = HERE) -> int:
    """Bring the history of a site back from a file of `ordercast backup`.

    Example: ordercast restore main-1 main-1.backup

    Parameters
    ----------
    site
        The site; its data folder must be empty, or not be there.
    file
        The backup.
    cluster
        The configuration.

    """
    from ordercast.history.backup import restore as bring_back
    from ordercast.live.config import private_folder

    config = _known(cluster, site)
    private_folder(config.data_folder)
    identity, records = bring_back(file, config.data_folder / site, config.name, site)
    print(f"{config.data_folder / site}: {records:,} records of site {identity.site} are back")
    return 0
