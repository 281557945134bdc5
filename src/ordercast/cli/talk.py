"""`ordercast send | tail | status | explain`: commands that speak to running sites, each with a time limit."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from cyclopts import Parameter
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ordercast.cli.live import HERE, ClusterFile, Json
from ordercast.errors import InputError, LocalError, OrdercastError
from ordercast.show.terminal import Screen, shown

if TYPE_CHECKING:
    from ordercast.client.client import Client
    from ordercast.live.config import Cluster

T = TypeVar("T")
TOKEN = "ORDERCAST_TOKEN"
CHUNK_BYTES, CHUNK_LINES = 64 * 2**10, 1024
AHEAD = 64  # chunks of the standard input read before they are sent


def address_of(config: "Cluster", at: str | None) -> str:
    """Return where clients reach a site, or the first that takes any; raises InputError when it takes none."""
    if at is None:
        if not config.clients:
            raise InputError("no site of this cluster takes clients: there is no [clients]")
        return next(iter(config.clients.values()))
    if at not in config.clients:
        raise InputError(f"site {at!r} takes no clients (those that do: {', '.join(config.clients)})")
    return config.clients[at]


def client_of(config: "Cluster", address: str, token: str | None, seconds: float) -> "Client":
    """Return a client; where sites have certificates, it speaks TLS and trusts the cluster's CA."""
    from ordercast.client.client import connect

    certs = config.security.certs
    return connect(address, token, seconds, ca=None if certs is None else Path(config.folder) / certs / "ca.pem")


def token_of(token: str | None, file: Path | None) -> str | None:
    """Return the token: as given, from a file, or from the environment, where no list of processes shows it."""
    if token is not None:
        return token
    if file is None:
        return os.environ.get(TOKEN)
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: not UTF-8") from None


def seconds_of(timeout: float) -> float:
    """Return a time limit, checked."""
    if not 0 < timeout < 10**9:
        raise InputError(f"--timeout {timeout:g}: give seconds above 0")
    return timeout


def send(
    group: str,
    body: str | None = None,
    /,
    *,
    cluster: ClusterFile = HERE,
    at: str | None = None,
    ack: Literal["none", "ordered", "safe"] = "none",
    raw: Annotated[bool, Parameter(negative="")] = False,
    timeout: float = 30.0,
    token: str | None = None,
    token_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Send a message to a group, or each line of the standard input, byte for byte.

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
        Wait until the site has taken it (none), for its place in the order, or until every member has it durably.
    raw
        The whole standard input is one message.
    timeout
        Seconds to wait for the site, and for each acknowledgement.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    as_json
        Print the receipts as JSON lines.

    """
    from ordercast.live.config import read_cluster

    if raw and body is not None:
        raise InputError("--raw is for the standard input; there is a message on the command line")
    config, secret = read_cluster(cluster), token_of(token, token_file)
    address = address_of(config, at)
    limit, groups = seconds_of(timeout), tuple(group.split("+"))

    async def post(client: "Client", bodies: list[bytes]) -> None:
        try:
            async with asyncio.timeout(limit):
                first, stamps = await client.multicast_many(groups, bodies, ack)
        except TimeoutError:
            many = "the message" if len(bodies) == 1 else f"{len(bodies)} messages"
            raise LocalError(
                f"{client.site} has not acknowledged {many} within {limit:g} s (ack {ack}); sent or not is not known"
            ) from None
        for index in range(len(bodies)):
            place = stamps[index] if stamps else None
            name = f"{client.site}:{first + index}"
            told = {"message": name, "ack": ack, "stamp": None if place is None else place.hex()}
            print(msgspec.json.encode(told).decode() if as_json else f"{name} {'taken' if ack == 'none' else ack}")
        sys.stdout.flush()

    async def run() -> int:
        async with client_of(config, address, secret, limit) as client:
            if body is not None:
                await post(client, [os.fsencode(body)])
            else:
                await _each_chunk(raw, lambda bodies: post(client, bodies))
        return 0

    return asyncio.run(run())


async def _each_chunk(raw: bool, post: Callable[[list[bytes]], Awaitable[None]]) -> None:
    """Read the standard input in a thread that nobody waits for, so that Ctrl-C ends the command at once."""
    loop, chunks = asyncio.get_running_loop(), asyncio.Queue[list[bytes] | None]()
    ahead = threading.Semaphore(AHEAD)

    def give(lines: list[bytes] | None) -> None:
        ahead.acquire()
        with contextlib.suppress(RuntimeError):  # the command has ended
            loop.call_soon_threadsafe(chunks.put_nowait, lines)

    def read() -> None:
        rest: list[bytes] = []
        while data := os.read(0, CHUNK_BYTES):
            if raw or b"\n" not in data:
                rest.append(data)
                continue
            *lines, last = b"".join([*rest, data]).split(b"\n")
            rest = [last] if last else []
            for begin in range(0, len(lines), CHUNK_LINES):
                give(lines[begin : begin + CHUNK_LINES])
        if rest or raw:
            give([b"".join(rest)])
        give(None)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (lines := await chunks.get()) is not None:
        ahead.release()
        await post(lines)


def tail(
    *groups: str,
    cluster: ClusterFile = HERE,
    at: str | None = None,
    after: int | None = None,
    count: int | None = None,
    gaps: Annotated[bool, Parameter(negative="")] = False,
    timeout: float = 10.0,
    token: str | None = None,
    token_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Print what a site delivers, in the one order of all its groups, until Ctrl-C.

    It waits for messages for ever, but not for a site that is gone: one that says nothing for 8 s ends it, exit code 1.

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
    gaps
        Rather miss messages, and print which, than let the site wait for this terminal.
    timeout
        Seconds to wait for the site to answer.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    as_json
        Print JSON lines.

    """
    from ordercast.cli.events import as_json_event, as_line
    from ordercast.live.config import read_cluster

    if count is not None and count < 1:
        raise InputError(f"--count {count}: must be at least 1")
    config, secret, limit = read_cluster(cluster), token_of(token, token_file), seconds_of(timeout)
    address = address_of(config, at)

    async def run() -> int:
        left = count
        async with client_of(config, address, secret, limit) as client:
            await client.join(list(groups) or None, after=after, policy="gap" if gaps else "block")
            async for event in client.events():
                if as_json:
                    print(msgspec.json.encode(as_json_event(event)).decode(), flush=True)
                else:
                    print(as_line(event), flush=True)
                if left is not None:
                    left -= 1
                    if left <= 0:
                        break
        return 0

    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(run())
    return 0


async def _ask_all(
    config: "Cluster", token: str | None, seconds: float, ask: Callable[["Client"], Awaitable[T]]
) -> dict[str, T | str]:
    """Ask every site that takes clients; where none answers, the value says why."""

    async def one(name: str, address: str) -> tuple[str, T | str]:
        try:
            async with asyncio.timeout(seconds), client_of(config, address, token, seconds) as client:
                return name, await ask(client)
        except TimeoutError:
            return name, f"no answer within {seconds:g} s"
        except OrdercastError as error:
            return name, str(error)

    return dict(await asyncio.gather(*(one(name, address) for name, address in config.clients.items())))


async def statuses(config: "Cluster", token: str | None, seconds: float) -> dict[str, dict[str, Any]]:
    """Ask every site that takes clients for its status; where none answers, `failed` says why."""
    found = await _ask_all(config, token, seconds, lambda client: client.status())
    return {
        name: {"site": name, "failed": told} if isinstance(told, str) else told for name, told in found.items()
    }  # fmt: skip


def _epochs(status: dict[str, Any]) -> str:
    """Return who is suspected or was taken out, in words; empty where nobody is, or groups are fixed."""
    epochs = status["epochs"]
    if epochs is None:
        return ""
    away = [f"{site} was taken out of {', '.join(groups)}" for site, groups in epochs["away"].items()]
    suspected = [f"{site} is suspected" for site in epochs["suspected"] if site not in epochs["away"]]
    return "; ".join(away + suspected)


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
        problem = status["failed"] or _epochs(status) or (f"{held[0]['what']}: {held[0]['reason']}" if held else "")
        links = Text(f"{up_now}/{all_of_them}", "green" if up_now == all_of_them else "red")
        oldest = f"{status['oldest_unsafe_seconds']:.1f} s" if status["unsafe_envelopes"] else ""
        figures = [f"{status['sent']:,}", f"{status['delivered']:,}", str(status["unsafe_envelopes"]), oldest]
        table.add_row(Text(name), links, *figures, str(len(held)), Text(shown(problem)))
    return table


def status(
    *,
    cluster: ClusterFile = HERE,
    watch: Annotated[bool, Parameter(negative="")] = False,
    timeout: float = 2.0,
    token: str | None = None,
    token_file: Path | None = None,
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

    config = read_cluster(cluster)
    address_of(config, None)
    secret, limit = token_of(token, token_file), seconds_of(timeout)
    if watch and not as_json:
        screen = Screen()
        drawn = Live(console=screen, refresh_per_second=4) if screen.is_terminal else None
        stop = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: stop.set())  # an exception may be raised where nobody takes it
        with drawn or contextlib.nullcontext():
            while not stop.is_set():
                table = _status_table(config, asyncio.run(statuses(config, secret, limit)))
                if drawn is not None:
                    drawn.update(table)
                else:  # nothing to draw over: one table after the other
                    screen.print(table)
                stop.wait(1.0)
        signal.signal(signal.SIGINT, before)
        return 0
    found = asyncio.run(statuses(config, secret, limit))
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        Screen().print(_status_table(config, found))
    return 1 if any(one.get("failed") for one in found.values()) else 0


def explain(
    message: str,
    /,
    *,
    cluster: ClusterFile = HERE,
    timeout: float = 2.0,
    token: str | None = None,
    token_file: Path | None = None,
    as_json: Json = False,
) -> int:
    """Say where a message is, what it waits for, since when and why: every site is asked.

    The exit code is 1 when no site answers.

    Example: ordercast explain main-1:17

    Parameters
    ----------
    message
        SOURCE:NUMBER, as `send` and `tail` print it.
    cluster
        The configuration.
    timeout
        Seconds to wait for each site.
    token
        The client's token; better in ORDERCAST_TOKEN or in a file: others can see the command line.
    token_file
        A file with the client's token.
    as_json
        Print the answers as JSON.

    """
    from ordercast.live.config import read_cluster

    config = read_cluster(cluster)
    source, _, number = message.rpartition(":")
    if source not in config.sites or not (number.isascii() and number.isdigit()):
        raise InputError(f"{message!r} is not SOURCE:NUMBER with a source of this cluster")
    address_of(config, None)
    asked = _ask_all(config, token_of(token, token_file), seconds_of(timeout), lambda client: client.explain(message))
    answers = asyncio.run(asked)
    found = {name: [told] if isinstance(told, str) else list(told["facts"]) for name, told in answers.items()}
    if as_json:
        print(msgspec.json.encode({"message": message, "sites": found}).decode())
    else:
        for name, facts in found.items():
            for fact in facts:
                print(f"{shown(name)}: {shown(fact)}")
    return 1 if all(isinstance(told, str) for told in answers.values()) else 0
