"""`ordercast up | site | send | tail | group | status | explain | certs | bench`: the live system."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ordercast.cli.render import Screen, shown
from ordercast.errors import InputError, LocalError, OrdercastError

if TYPE_CHECKING:
    from ordercast.runtime.config import Cluster

Json = Annotated[bool, Parameter(name="--json", negative="")]
ClusterFile = Annotated[Path, Parameter(name=("--cluster", "-c"))]
HERE = Path("cluster.toml")


def _log(verbose: bool) -> None:
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format=form, stream=sys.stderr)


def site(
    name: str,
    /,
    *,
    cluster: ClusterFile = HERE,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run one site until it is told to stop (SIGTERM or Ctrl-C).

    Example: ordercast site main-1 --cluster cluster.toml

    Parameters
    ----------
    name
        The site, as in the configuration.
    cluster
        The configuration.
    verbose
        Log more.

    """
    from ordercast.runtime import loop
    from ordercast.runtime.config import read_cluster
    from ordercast.runtime.site import Site

    config = read_cluster(cluster)
    if name not in config.sites:
        raise InputError(f"{cluster}: there is no site {name!r} (sites: {', '.join(config.sites)})")
    _log(verbose)

    async def run() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with Site(config, name) as running:
            print(f"{name} is up at {config.sites[name]}", flush=True)
            gc.collect()
            gc.freeze()  # what is there by now stays: the collector need not look at it again
            while not stop.is_set() and running.failed is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 0.2)
            if running.failed is not None:
                print(f"ordercast: {name}: {running.failed}", file=sys.stderr)
                return 1
        return 0

    return loop.run(run())


def up(cluster: Path = HERE, /, *, seconds: float | None = None) -> int:
    """Run all sites of a cluster on this machine, each in a process of its own, until Ctrl-C.

    Example: ordercast up cluster.toml

    Parameters
    ----------
    cluster
        The configuration.
    seconds
        Stop after so long.

    """
    from ordercast.runtime.config import deploy, read_cluster

    config = read_cluster(cluster)
    deploy(config)  # the plan is made once, before the sites ask for it
    import subprocess

    command = [sys.executable, "-m", "ordercast", "site"]
    running = {name: subprocess.Popen([*command, name, "--cluster", str(cluster)]) for name in config.sites}
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    failed = False
    while not stopping and time.monotonic() < until and not failed:
        time.sleep(0.1)
        for name, process in running.items():
            if process.poll() is not None:
                print(f"ordercast: site {name} ended with exit code {process.returncode}", file=sys.stderr)
                failed = True
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.wait()
    return 1 if failed else 0


def _address(config: "Cluster", at: str | None) -> str:
    if at is None:
        if not config.clients:
            raise InputError("no site of this cluster takes clients: there is no [clients]")
        return next(iter(config.clients.values()))
    if at not in config.clients:
        raise InputError(f"site {at!r} takes no clients (those that do: {', '.join(config.clients)})")
    return config.clients[at]


def send(
    group: str,
    body: str | None = None,
    /,
    *,
    cluster: ClusterFile = HERE,
    at: str | None = None,
    ack: Literal["none", "ordered", "safe"] = "none",
    token: str | None = None,
    as_json: Json = False,
) -> int:
    """Send a message to a group, or each line of the standard input.

    Example: ordercast send transactions "credit 17 100" --ack safe

    Parameters
    ----------
    group
        The group; several, joined by +, get it as one message.
    body
        The message; without it, every line of the standard input is one.
    cluster
        The configuration.
    at
        The site to send through; without it, the first that takes clients.
    ack
        Wait for nothing, for its place in the order, or until every member has it durably.
    token
        The client's token.
    as_json
        Print the receipts as JSON lines.

    """
    from ordercast.runtime.client import connect
    from ordercast.runtime.config import read_cluster

    address = _address(read_cluster(cluster), at)
    groups = tuple(group.split("+"))

    async def run() -> int:
        async with connect(address, token) as client:
            lines = [body] if body is not None else (line.rstrip("\n") for line in sys.stdin)
            for line in lines:
                receipt = await client.multicast(groups if len(groups) > 1 else group, line.encode(), ack=ack)
                if receipt is not None:
                    place = receipt.stamp.hex() if receipt.stamp is not None else None
                    told = {"message": f"{client.site}:{receipt.number}", "ack": ack, "stamp": place}
                    print(msgspec.json.encode(told).decode() if as_json else f"{told['message']} {ack}")
            await client.flush()
        return 0

    return asyncio.run(run())


def tail(
    *groups: str,
    cluster: ClusterFile = HERE,
    at: str | None = None,
    after: int | None = None,
    count: int | None = None,
    token: str | None = None,
    as_json: Json = False,
) -> int:
    """Print what a site delivers, in the one order of all its groups, until Ctrl-C.

    Example: ordercast tail --at main-2 --after -1

    Parameters
    ----------
    groups
        Which groups; without any, all the site is in.
    cluster
        The configuration.
    at
        The site to read from; without it, the first that takes clients.
    after
        Start after this position; -1 is the very beginning. Without it, from now on.
    count
        Stop after so many.
    token
        The client's token.
    as_json
        Print JSON lines.

    """
    from ordercast.runtime.client import connect
    from ordercast.runtime.config import read_cluster

    address = _address(read_cluster(cluster), at)

    async def run() -> int:
        left = count
        async with connect(address, token) as client:
            await client.join(list(groups) or None, after=after)
            async for message in client:
                text = message.body.decode("utf-8", "replace")
                if as_json:
                    told = {"position": message.position, "group": message.group, "body": text}
                    told |= {"message": f"{message.source}:{message.number}"}
                    print(msgspec.json.encode(told).decode(), flush=True)
                else:
                    name = f"{message.source}:{message.number}"
                    print(f"{message.position:6} {shown(message.group):16} {name:16} {shown(text)}", flush=True)
                if left is not None:
                    left -= 1
                    if left <= 0:
                        break
        return 0

    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(run())
    return 0


async def _statuses(config: "Cluster", token: str | None) -> dict[str, dict[str, Any]]:
    from ordercast.runtime.client import connect

    async def one(name: str, address: str) -> tuple[str, dict[str, Any]]:
        try:
            async with asyncio.timeout(2.0), connect(address, token) as client:
                return name, await client.status()
        except (OrdercastError, TimeoutError) as error:
            return name, {"site": name, "failed": str(error) or "no answer within 2 s"}

    return dict(await asyncio.gather(*(one(name, address) for name, address in config.clients.items())))


def _status_table(config: "Cluster", statuses: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=f"{config.name}: {config.protocol}, {'durable' if config.durable else 'not durable'}")
    for head in ("site", "links", "sent", "delivered", "not safe", "oldest", "held", "problem"):
        table.add_column(head, justify="left" if head in ("site", "problem") else "right")
    for name, status in statuses.items():
        if "peers" not in status:
            table.add_row(Text(name), "", "", "", "", "", "", Text(str(status["failed"]), "red"))
            continue
        up_now, all_of_them = sum(status["peers"].values()), len(status["peers"])
        held = status["held"]
        problem = status["failed"] or (f"{held[0]['what']}: {held[0]['reason']}" if held else "")
        links = Text(f"{up_now}/{all_of_them}", "green" if up_now == all_of_them else "red")
        oldest = f"{status['oldest_unsafe_seconds']:.1f} s" if status["unsafe_envelopes"] else ""
        figures = [f"{status['sent']:,}", f"{status['delivered']:,}", str(status["unsafe_envelopes"]), oldest]
        table.add_row(Text(name), links, *figures, str(len(held)), Text(shown(problem)))
    return table


def status(
    *,
    cluster: ClusterFile = HERE,
    watch: Annotated[bool, Parameter(negative="")] = False,
    token: str | None = None,
    as_json: Json = False,
) -> int:
    """Show every site that takes clients: links, traffic, what is not safe yet and what is held, and why.

    Example: ordercast status --watch

    Parameters
    ----------
    cluster
        The configuration.
    watch
        Show again every second, until Ctrl-C.
    token
        The client's token.
    as_json
        Print everything as JSON.

    """
    from ordercast.runtime.config import read_cluster

    config = read_cluster(cluster)
    _address(config, None)
    if as_json:
        found = asyncio.run(_statuses(config, token))
        print(msgspec.json.encode(found).decode())
    elif watch:
        screen = Screen()
        with contextlib.suppress(KeyboardInterrupt), Live(console=screen, refresh_per_second=4) as live:
            while True:
                table = _status_table(config, asyncio.run(_statuses(config, token)))
                live.update(table)
                if not screen.is_terminal:  # nothing to draw over: one table after the other
                    screen.print(table)
                time.sleep(1.0)
        return 0
    else:
        found = asyncio.run(_statuses(config, token))
        Screen().print(_status_table(config, found))
    return 1 if any(one.get("failed") for one in found.values()) else 0


def explain(message: str, /, *, cluster: ClusterFile = HERE, token: str | None = None, as_json: Json = False) -> int:
    """Say where a message is, what it waits for, since when and why: every site is asked.

    Example: ordercast explain main-1:17

    Parameters
    ----------
    message
        SOURCE:NUMBER, as `send` and `tail` print it.
    cluster
        The configuration.
    token
        The client's token.
    as_json
        Print the answers as JSON.

    """
    from ordercast.runtime.client import connect
    from ordercast.runtime.config import read_cluster

    config = read_cluster(cluster)
    source, _, number = message.rpartition(":")
    if source not in config.sites or not number.isdigit():
        raise InputError(f"{message!r} is not SOURCE:NUMBER with a source of this cluster")
    _address(config, None)

    async def ask(name: str, address: str) -> tuple[str, list[str]]:
        try:
            async with asyncio.timeout(2.0), connect(address, token) as client:
                return name, (await client.explain(message))["facts"]
        except (OrdercastError, TimeoutError) as error:
            return name, [str(error) or "no answer within 2 s"]

    async def run() -> dict[str, list[str]]:
        return dict(await asyncio.gather(*(ask(name, address) for name, address in config.clients.items())))

    found = asyncio.run(run())
    if as_json:
        print(msgspec.json.encode({"message": message, "sites": found}).decode())
        return 0
    for name, facts in found.items():
        for fact in facts:
            print(f"{shown(name)}: {shown(fact)}")
    return 0


def group(what: Literal["list"], /, *, cluster: ClusterFile = HERE, as_json: Json = False) -> int:
    """List the groups of a cluster: members, class, who orders them.

    Example: ordercast group list

    Parameters
    ----------
    what
        list
    cluster
        The configuration.
    as_json
        Print JSON.

    """
    from ordercast.runtime.config import deploy, read_cluster

    deployment = deploy(read_cluster(cluster))
    rows: list[dict[str, Any]] = []
    for name, members in deployment.groups.members.items():
        orderer = deployment.plan.groups[name].entry if deployment.plan is not None else None
        classed = deployment.groups.classes[deployment.groups.class_of(name)][0]
        rows.append({"group": name, "members": list(members), "class": classed, "ordered_by": orderer})
    if as_json:
        print(msgspec.json.encode(rows).decode())
        return 0
    table = Table(title="groups")
    for head in ("group", "ordered by", "class", "members"):
        table.add_column(head)
    for row in rows:
        cells = [row["group"], row["ordered_by"] or "", row["class"], " ".join(row["members"])]
        table.add_row(*(Text(shown(str(cell))) for cell in cells))
    Screen().print(table)
    return 0


def certs(folder: Path = Path("certs"), /, *, cluster: ClusterFile = HERE) -> int:
    """Make a development CA and a certificate for each site; set `security.certs` to the folder to use them.

    Example: ordercast certs certs --cluster cluster.toml

    Parameters
    ----------
    folder
        Where to write; there must be no CA in it yet.
    cluster
        The configuration, for the names.

    """
    from ordercast.runtime.config import read_cluster
    from ordercast.runtime.tls import make_certs

    names = list(read_cluster(cluster).sites)
    make_certs(folder, names)
    print(f"{folder}: ca.pem and certificates for {', '.join(names)}")
    return 0


def bench(
    workload: Path,
    /,
    *,
    messages: int | None = None,
    batch: int | None = None,
    durable: bool | None = None,
    as_json: Json = False,
) -> int:
    """Run a workload on real processes over TCP, durable and not; order and completeness are verified.

    Example: ordercast bench workload.toml --messages 20000

    Parameters
    ----------
    workload
        Groups, senders and the size of a message (.toml).
    messages
        How many messages all senders send as fast as it goes; 1,200,000, or fewer with a small `--batch`.
    batch
        At most so many messages in an envelope; 1 shows what batching is worth.
    durable
        Only durable, or only not; without it both.
    as_json
        Print JSON.

    """
    from ordercast.runtime.bench import measure, read_workload

    if messages is None:
        messages = 1_200_000 if batch is None else min(1_200_000, 20_000 * batch)  # some seconds
    if messages < 1 or (batch is not None and batch < 1):
        raise InputError("--messages and --batch must be at least 1")
    asked = read_workload(workload)
    screen = Screen(stderr=True)
    runs = []
    for mode in (False, True) if durable is None else (durable,):
        kind = "durable" if mode else "not durable"
        with screen.status(kind) as line:
            say = lambda text, kind=kind, line=line: line.update(f"{kind}: {text}")  # noqa: E731
            try:
                runs.append(measure(asked, durable=mode, messages=messages, batch=batch, say=say))
            except LocalError as error:
                print(f"ordercast: bench: {error}", file=sys.stderr)
                return 1
    if as_json:
        print(msgspec.json.encode({"workload": workload.stem, "runs": runs}).decode())
    else:
        table = Table(title=f"{workload.stem}: {os.cpu_count()} cores")
        heads = ("durable", "deliveries_per_s", "p50_ms", "p99_ms", "cpu_s_per_100k", "rss_mib", "order_ok", "complete")
        for head in heads:
            table.add_column(head.replace("_", " "), justify="right")
        for run in runs:
            table.add_row(*(f"{run[h]:,}" if type(run[h]) in (int, float) else str(run[h]) for h in heads))
        Screen().print(table)
    return 0 if all(run["order_ok"] and run["complete"] for run in runs) else 1
