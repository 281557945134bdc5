"""Prometheus metrics, health and readiness of a site, over HTTP: /metrics, /healthz, /readyz."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ordercast.errors import LocalError

if TYPE_CHECKING:
    from ordercast.live.site import Site


class _Figures(Collector):
    """Reads a site when it is asked."""

    def __init__(self, site: "Site") -> None:
        self.site = site

    def collect(self) -> Iterator[Metric]:
        """Yield everything there is to count."""
        status = self.site.status()
        counts = status["counts"]
        for name, told, value in (
            ("sent", "Messages sent by this site", status["sent"]),
            ("delivered", "Messages delivered at this site", status["delivered"]),
            ("envelopes_sent", "Batches sent by this site: messages per batch is the batch size", counts["batches"]),
            ("commits", "Group commits of the history", counts["commits"]),
            ("records", "Records written to the history", counts["records"]),
            ("commit_seconds", "Seconds spent in group commits, fsync included", status["commit_seconds"]),
            ("reconnects", "Links made again", counts["reconnects"]),
            ("resent", "Envelopes sent again to a peer that asked", counts["resent"]),
            ("parked", "Envelopes that waited outside because a reader was behind", counts["parked"]),
            ("passed_on", "Envelopes passed on here for groups this site is not in (extra node)", counts["extra"]),
        ):
            yield CounterMetricFamily(f"ordercast_{name}", told, value)
        yield from _epochs(status["epochs"])
        held = status["held"]
        for name, told, value in (
            (
                "unsafe_bytes",
                "Bytes of this site's messages that are not safe: the window in use",
                status["unsafe_bytes"],
            ),
            ("unsafe_seconds", "Age of the oldest message that is not safe", status["oldest_unsafe_seconds"]),
            ("held", "Messages held back", len(held)),
            ("held_seconds", "Age of the oldest message held back", max([h["seconds"] for h in held], default=0.0)),
            ("reader_bytes", "Bytes the slowest reader has not read", max(status["reader_bytes"], default=0)),
            ("links", "Peers with a link", sum(status["peers"].values())),
            ("posts_waiting", "Posts that wait for room", status["posts_waiting"]),
            ("parked_now", "Messages that wait outside because of a reader", status["parked"]),
            ("failed", "Whether the site has given up (disk)", int(status["failed"] is not None)),
        ):
            yield GaugeMetricFamily(f"ordercast_{name}", told, value)
        reasons = GaugeMetricFamily("ordercast_held_reason", "Held back, by why", labels=["reason"])
        seen: dict[str, int] = {}
        for one in held:
            seen[one["reason"]] = seen.get(one["reason"], 0) + 1
        for reason, many in list(seen.items())[:20]:
            reasons.add_metric([reason], many)
        yield reasons
        readers = GaugeMetricFamily("ordercast_reader_behind_bytes", "What a reader has not read", labels=["reader"])
        for reader in status["readers"][:100]:
            readers.add_metric([reader["name"]], reader["bytes"])
        yield readers


def _epochs(told: dict[str, Any] | None) -> Iterator[Metric]:
    """Yield what there is to count of configurations, where groups change."""
    if told is None:
        return
    closed = sum(one["state"] in ("closed", "opening") for one in told["classes"])
    for name, says, value in (
        (
            "configuration",
            "Number of the configuration this site is in; 0 before the cluster has begun",
            told["number"],
        ),
        ("suspected", "Sites that this site suspects to have failed", len(told["suspected"])),
        ("away", "Sites that were taken out of groups because they were suspected", len(told["away"])),
        ("classes_not_open", "Classes of this site that stand still", closed),
    ):
        yield GaugeMetricFamily(f"ordercast_{name}", says, value)


async def serve(site: "Site") -> asyncio.Server:
    """Answer at the site's metrics address."""
    registry = CollectorRegistry()
    registry.register(_Figures(site))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                request = await reader.readline()
                path = [*request.split(b" "), b"", b""][1].decode("ascii", "replace")
                while (await reader.readline()).strip():
                    pass
            status, body = _page(site, registry, path)
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # a scraper that goes away hurts nobody
        finally:
            writer.close()

    host, port = site.cluster.address(site.me, "metrics")
    try:
        return await asyncio.start_server(answer, host, port)
    except OSError as error:
        raise LocalError(f"{site.me} cannot serve metrics at {host}:{port}: {error.strerror}") from None


def _page(site: "Site", registry: CollectorRegistry, path: str) -> tuple[str, bytes]:
    if path == "/metrics":
        return "200 OK", generate_latest(registry)
    if path == "/healthz":
        return ("200 OK", b"ok\n") if site.failed is None else ("503 Failed", f"{site.failed}\n".encode())
    if path == "/readyz":
        status = site.status()
        if status["phase"] != "running" or status["lost"]:
            return "503 Not ready", f"{status['failed'] or status['lost'] or status['phase']}\n".encode()
        missing = [peer for peer, up in status["peers"].items() if not up]
        away = f"no link to {' '.join(missing)}: groups that need them wait\n" if missing else ""
        return "200 OK", f"ready\n{away}".encode()
    return "404 Not Found", b"/metrics /healthz /readyz\n"
