"""`ordercast doctor`: looks at a cluster as an operator would who has been called, and says what to do."""

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from rich.table import Table
from rich.text import Text

from ordercast.cli.live import HERE, Json
from ordercast.cli.talk import seconds_of, statuses, token_of
from ordercast.errors import InputError
from ordercast.show.terminal import Screen, shown

if TYPE_CHECKING:
    from ordercast.live.config import Cluster

CLOCK_S = 1.0  # two machines may differ by so much before somebody should look
FREE_BYTES = 2**30
CERT_DAYS = 30
HELD_S = 10.0

State = Literal["ok", "look", "bad"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: what, how it is, and what to do if it is not well."""

    what: str
    state: State
    says: str
    do: str = ""


def doctor(
    cluster: Path = HERE,
    /,
    *,
    timeout: float = 2.0,
    token: str | None = None,
    token_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Check a cluster: addresses, sites, clocks, disks, certificates, what is held; and say what to do.

    The exit code is 1 when something is bad. Disks and certificates are those of this machine.

    Example: ordercast doctor cluster.toml

    Parameters
    ----------
    cluster
        The configuration.
    timeout
        Seconds to wait for each site.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    as_json
        Print everything as JSON.

    """
    from ordercast.live.config import read_cluster

    config, limit = read_cluster(cluster), seconds_of(timeout)
    known = asyncio.run(statuses(config, token_of(token, token_file), limit)) if config.clients else {}
    found = [
        Finding(f"{cluster}", "ok", f"{len(config.sites)} sites, {len(config.groups)} groups, policy {config.policy}"),
        *_addresses(config, limit),
        *(one for name, status in known.items() for one in _site(name, status)),
        *_disk(config),
        *_certificates(config),
    ]
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        table = Table(title=f"{config.name}")
        for head in ("", "what", "how it is", "what to do"):
            table.add_column(head)
        for one in found:
            colour = {"ok": "green", "look": "yellow", "bad": "red"}[one.state]
            table.add_row(Text(one.state, colour), *(Text(shown(cell)) for cell in (one.what, one.says, one.do)))
        Screen().print(table)
    return 1 if any(one.state == "bad" for one in found) else 0


def _addresses(config: "Cluster", seconds: float) -> Iterator[Finding]:
    """Whether somebody answers where sites are called."""
    for name in config.sites:
        host, port = config.address(name)
        try:
            with closing(socket.create_connection((host, port), seconds)):
                yield Finding(f"{name} at {host}:{port}", "ok", "takes connections of other sites")
        except OSError as error:
            says = f"no connection: {error.strerror or error}"
            yield Finding(f"{name} at {host}:{port}", "bad", says, f"start it, or open the port: ordercast site {name}")


def _site(name: str, status: dict[str, Any]) -> Iterator[Finding]:
    """What a site says of itself."""
    if "peers" not in status:
        yield Finding(f"site {name}", "bad", str(status["failed"]), "look at its log; is the token right?")
        return
    late = status["clock"] - time.time()
    if abs(late) > CLOCK_S:
        yield Finding(f"clock of {name}", "look", f"{late:+.1f} s off this machine's", "run a time service on both")
    missing = [peer for peer, up in status["peers"].items() if not up]
    if missing:
        why = "; ".join(f"{peer}: {reason}" for peer, reason in status["refused"].items()) or "nobody answers"
        yield Finding(f"links of {name}", "bad", f"none to {', '.join(missing)} ({why})", "start them, or remove them")
    for problem in (status["failed"], status["lost"]):
        if problem:
            yield Finding(f"site {name}", "bad", problem, "see docs/live.md, What a failure does")
    epochs = status["epochs"]
    for site, groups in (epochs["away"] if epochs else {}).items():
        yield Finding(f"site {site}", "look", f"was taken out of {', '.join(groups)}", "it comes back by itself")
    old = [held for held in status["held"] if held["seconds"] > HELD_S]
    if old:
        says = f"{len(old)} held for more than {HELD_S:g} s: {old[0]['what']}: {old[0]['reason']}"
        yield Finding(f"messages at {name}", "bad", says, "ordercast explain SOURCE:NUMBER")
    for reader in status["readers"]:
        if reader["holds_up"]:
            says = f"is {reader['bytes']} bytes behind; {', '.join(reader['holds_up'])} wait for it"
            yield Finding(f"reader {reader['name']} at {name}", "bad", says, "let it read, or join with policy drop")
    if not (missing or old or status["failed"] or status["lost"]):
        where = f"configuration {epochs['number']}, manager {epochs['manager']}" if epochs else "groups are fixed"
        yield Finding(f"site {name}", "ok", f"{status['delivered']:,} delivered, nothing held; {where}")


def _disk(config: "Cluster") -> Iterator[Finding]:
    """The data folder of this machine, where it has one."""
    folder = config.data_folder
    if not config.durable or not folder.exists():
        return
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        yield Finding(f"{folder}", "bad", "cannot be written", "give it to the user who runs the sites")
    elif free < FREE_BYTES:
        yield Finding(
            f"{folder}", "look", f"{free / 2**20:,.0f} MiB are left", "make room: a full disk stops its sites"
        )
    else:
        yield Finding(f"{folder}", "ok", f"{free / 2**30:,.0f} GiB are left")


def _certificates(config: "Cluster") -> Iterator[Finding]:
    """Certificates that this machine has, and how long they are good."""
    if config.security.certs is None:
        return
    import datetime

    from cryptography import x509

    folder = Path(config.folder) / config.security.certs
    now = datetime.datetime.now(datetime.UTC)
    for name in ("ca", *config.sites):
        path = folder / f"{name}.pem"
        try:
            until = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        except FileNotFoundError:
            continue  # of another machine
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: {error}") from None
        days = (until - now).days
        if days < CERT_DAYS:
            yield Finding(f"{path}", "bad" if days < 0 else "look", f"ends {until:%Y-%m-%d}", "make a new one")
        else:
            yield Finding(f"{path}", "ok", f"good until {until:%Y-%m-%d}")
