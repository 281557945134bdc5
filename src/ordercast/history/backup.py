"""A backup of a site that has stopped: its history in one file. It is checked when it is made, and when it is restored.

A copy of a running site would be old the moment it is made: the others know what the site has said since, and refuse it
(`records.Met`). So the folder is locked meanwhile, as by a site.
"""

import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ordercast.errors import HistoryError, InputError
from ordercast.history.disk import DiskHistory
from ordercast.history.store import Identity
from ordercast.names import SiteId

FILES = ("mark", "history.db")


def back_up(folder: Path, file: Path, cluster: str, site: SiteId) -> tuple[Identity, int]:
    """Write the history of a stopped site to a file; return whose it is, and how many records it has.

    Raises InputError when there is no history or the file is there already, and HistoryError when the site runs or
    its history is damaged. The file appears when it is whole.
    """
    if not (folder / "mark").exists():
        raise InputError(f"{folder}: site {site} has no history here")
    if file.exists():
        raise InputError(f"{file}: is there already; nothing was written")
    with _checked(folder, cluster, site) as history, _whole_or_nothing(file) as part:
        history.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with part.open("xb") as out, tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive:
            for name in FILES:
                archive.add(folder / name, name)
            archive.close()
            out.flush()
            os.fsync(out.fileno())
        part.chmod(0o600)
        return history.identity, history.count


def restore(file: Path, folder: Path, cluster: str, site: SiteId) -> tuple[Identity, int]:
    """Bring the history of a site back from a file, to a folder where there is none; return the same as `back_up`."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: site {site} has something here; move it aside first. Nothing was changed")
    try:
        with _whole_or_nothing(folder) as part:
            part.mkdir(mode=0o700, parents=True)
            with tarfile.open(file, "r:gz") as archive:
                for name in FILES:
                    source = archive.extractfile(name)
                    if source is None:
                        raise HistoryError(f"{file}: {name} is not a file in it")
                    with source, (part / name).open("xb") as out:
                        shutil.copyfileobj(source, out)
                        os.fsync(out.fileno())
            with _checked(part, cluster, site) as history:
                found = history.identity, history.count
            with suppress(FileNotFoundError):
                folder.rmdir()
            return found
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or 'damaged'}") from None
    except (tarfile.TarError, zlib.error, KeyError, EOFError):
        raise InputError(f"{file}: not a backup, or a damaged one") from None


@contextmanager
def _checked(folder: Path, cluster: str, site: SiteId) -> Iterator[DiskHistory]:
    """Open a history, and read every record and index entry that a site may need."""
    history = DiskHistory.open(folder, cluster, site, 0)
    try:
        kept = history.checkpoint()
        for _ in history.records(kept.records if kept is not None else 0):
            pass
        at = history.first_position
        while at < history.next_position:
            at = history.past(at, 1024)[-1][0].end
        yield history
    finally:
        history.close()


@contextmanager
def _whole_or_nothing(path: Path) -> Iterator[Path]:
    """Give a hidden name to write to; it becomes the right one at the end, or vanishes."""
    part = path.with_name(f".{path.name}.part")
    _remove(part)
    try:
        yield part
        part.rename(path)
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
