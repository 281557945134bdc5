"""`ordercast up | certs | bench`: the live system; `talk` and `operate` speak to a running one."""

import asyncio
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
from rich.table import Table

from ordercast.errors import InputError, LocalError
from ordercast.show.terminal import Screen

if TYPE_CHECKING:
    from ordercast.live.config import Cluster

Json = Annotated[bool, Parameter(name="--json", negative="")]
ClusterFile = Annotated[Path, Parameter(name=("--cluster", "-c"))]
HERE = Path("cluster.toml")
LogFormat = Literal["text", "json"]
PATIENCE_S = 30.0  # for a site that was told to stop


class JsonLines(logging.Formatter):
    """One JSON object for each line: time, level, and the event with its facts, or the text where it has none."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        told: dict[str, Any] = {"time": round(record.created, 6), "level": record.levelname.lower()}
        told |= getattr(record, "facts", None) or {"message": record.getMessage()}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told, enc_hook=str).decode()


def _log(verbose: bool, log_format: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


def run_site(
    config: "Cluster",
    name: str,
    *,
    verbose: bool,
    log_format: LogFormat = "text",
    joins: bool = False,
    listen: str | None = None,
) -> int:
    """Run one site until it is told to stop."""
    from ordercast.live import loop
    from ordercast.live.site import Site

    with Screen(stderr=True).status(f"planning {len(config.groups):,} groups"):  # the first start only
        made = Site(config, name, joins=joins, listen=listen)
    _log(verbose, log_format)

    async def run() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with made as running:
            print(f"{name} is up at {config.sites[name]}", flush=True)
            gc.collect()
            gc.freeze()  # what is there by now stays: the collector need not look at it again
            waits = [asyncio.ensure_future(event.wait()) for event in (stop, running.ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if running.failed is not None:
                print(f"ordercast: {name}: {running.failed}", file=sys.stderr)
                return 1
        return 0

    return loop.run(run())


def up(cluster: Path = HERE, /, *, seconds: float | None = None, log_format: LogFormat = "text") -> int:
    """Run all sites of a cluster on this machine, each in a process of its own, until Ctrl-C.

    A site that ends is named, with its exit code; the others go on. The exit code is 1 if any ended by itself.

    Example: ordercast up cluster.toml

    Parameters
    ----------
    cluster
        The configuration.
    seconds
        Stop after so long.
    log_format
        How the sites log: text, or a JSON object for each line.

    """
    from ordercast.live.config import read_cluster

    config = read_cluster(cluster)
    _plan_once(config)
    import subprocess

    command = [sys.executable, "-m", "ordercast", "site"]
    options = ["--cluster", str(cluster), "--log-format", log_format]
    running = {name: subprocess.Popen([*command, name, *options]) for name in config.sites}
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    failed = False
    while running and not stopping and time.monotonic() < until:
        time.sleep(0.5)
        for name, process in list(running.items()):
            if process.poll() is not None:
                failed = True
                del running[name]
                rest = f"the other {len(running)} go on" if running else "no other is left"
                print(f"ordercast: site {name} {_ended(process.returncode)}; {rest}", file=sys.stderr, flush=True)
    for process in running.values():
        process.terminate()
        process.send_signal(signal.SIGCONT)  # one that was stopped must hear it too
    for name, process in running.items():
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            print(f"ordercast: site {name} does not stop; killed", file=sys.stderr)
            process.kill()
            process.wait()
            failed = True
    return 1 if failed else 0


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _plan_once(config: "Cluster") -> None:
    """Make the plan before the sites ask for it, and say so: it may take a while the first time."""
    from ordercast.live.config import deploy

    if config.changes:
        return  # each site makes the first configuration by itself: it is no search
    with Screen(stderr=True).status(f"planning {len(config.groups):,} groups"):
        deploy(config)


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
    from ordercast.live.config import read_cluster
    from ordercast.live.tls import make_certs

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
    from ordercast.bench.live import measure, read_workload

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
