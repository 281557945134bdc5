"""The demo's page: the plan, the crash as a space-time diagram, traffic over time, and what the audits say."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ordercast.audit.page import add_verdict
from ordercast.audit.verdict import Verdict
from ordercast.planning.plan import Plan
from ordercast.show.pages import Page
from ordercast.show.plan import draw_plan
from ordercast.show.spacetime import draw_spacetime
from ordercast.show.timeline import draw_timeline
from ordercast.sim.film import Film, Flight, Mark

BEFORE, DURING, AFTER = 3, 4, 2


def traffic(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read what was sent and delivered, in the order of time."""
    sends = pq.read_table(run / "sends").to_pylist()
    deliveries = pq.read_table(run / "deliveries").to_pylist()
    return sorted(sends, key=lambda row: row["sent_at"]), sorted(deliveries, key=lambda row: row["delivered_at"])


def draw_traffic(run: Path, down: tuple[float, float], who: str, path: Path) -> dict[str, float]:
    """Draw deliveries and latency over time; return what a table shows of it."""
    sends, deliveries = traffic(run)
    sent = {row["msg_id"]: row["sent_at"] for row in sends}
    start = sends[0]["sent_at"]
    at = np.array([row["delivered_at"] for row in deliveries])
    late = 1e3 * (at - np.array([sent[row["msg_id"]] for row in deliveries]))
    draw_timeline(at - start, late, (down[0] - start, down[1] - start), path, who)
    calm = late[at < down[0]]
    calm = calm if len(calm) else late
    return {
        "messages": float(len(sends)),
        "deliveries": float(len(deliveries)),
        "p50_ms": float(np.percentile(calm, 50)),
        "p99_ms": float(np.percentile(calm, 99)),
        "longest_s": float(late.max() / 1e3),
    }


def draw_crash(run: Path, down: tuple[float, float], killed: str, path: Path) -> None:
    """Draw a few messages before, during and after the crash: from the sender to every main computer."""
    sends, deliveries = traffic(run)
    own = [row for row in sends if row["group"] in ("transactions", "system-tables")]
    length = down[1] - down[0]
    spans = [(down[0] - length, down[0] - 0.1, BEFORE), (*down, DURING), (down[1] + 0.5, down[1] + length, AFTER)]
    chosen = {row["msg_id"]: row for begin, end, many in spans for row in _spread(own, begin, end, many)}
    if not chosen:
        return
    begin = min(row["sent_at"] for row in chosen.values()) - 0.1
    sites = sorted({row["source"] for row in chosen.values()} | {killed, "main-1", "main-2"})
    film = Film(sites)
    for message, row in chosen.items():
        film.happens(Mark(row["source"], row["sent_at"] - begin, "multicast", f"{message} {row['group']}"))
    for row in deliveries:
        if row["msg_id"] in chosen and row["site"] in ("main-1", "main-2"):
            sent = chosen[row["msg_id"]]
            if row["source"] != row["site"]:
                leaves, comes = sent["sent_at"] - begin, row["delivered_at"] - begin
                film.flies(Flight(row["source"], row["site"], leaves, comes, "", row["msg_id"]))
            film.happens(Mark(row["site"], row["delivered_at"] - begin, "deliver", row["msg_id"]))
    film.happens(Mark(killed, down[0] - begin, "crash"))
    film.happens(Mark(killed, down[1] - begin, "back"))
    draw_spacetime(film, path, f"{killed} is killed and comes back; what was sent meanwhile arrives, in one order")


def _spread(rows: list[dict[str, Any]], begin: float, end: float, many: int) -> list[dict[str, Any]]:
    """Choose messages sent in a span, evenly in time, from different senders where possible."""
    found: list[dict[str, Any]] = []
    for step in range(many):
        at = begin + (end - begin) * (step + 0.5) / many
        near = [row for row in rows if begin < row["sent_at"] < end and row not in found]
        used = {row["source"] for row in found}
        if near:
            found.append(min(near, key=lambda row: (row["source"] in used, abs(row["sent_at"] - at))))
    return found


def write_report(
    out: Path,
    plan: Plan,
    killed: str,
    down: tuple[float, float],
    balances: dict[str, dict[str, Any]],
    ordered: Verdict,
    unordered: Verdict,
    differ: list[tuple[int, int, int]],
) -> Path:
    """Write the page."""
    page = Page("A bank on ordercast")
    page.say(
        "Two main computers keep the whole database; branches, development machines and the main computers form five "
        "overlapping groups. Every two computers see what both get in the same order, whoever sent it, whatever group "
        "it went to."
    )
    page.head("The plan")
    draw_plan(plan, out / "plan.svg")
    page.picture(out / "plan.svg", "who orders which group, and the trees that messages flow down")
    page.head("The run")
    clients = len({row["source"] for row in traffic(out / "run")[0]})
    figures = draw_traffic(out / "run", down, killed, out / "timeline.svg")
    same = balances["main-1"]["balances"] == balances["main-2"]["balances"]
    page.say(
        f"{figures['messages']:,.0f} messages from {clients} clients, {figures['deliveries']:,.0f} deliveries. "
        f"{killed}, which orders the transactions, was killed with -9 and started again "
        f"{down[1] - down[0]:.1f} s later; nothing was lost. Balances at the two main computers are "
        f"{'identical' if same else 'DIFFERENT'}.",
        "good" if same else "bad",
    )
    page.picture(out / "timeline.svg", "deliveries a second and latency over time")
    page.table(
        ("latency before the crash, p50 ms", "p99 ms", "longest wait during it, s"),
        [(figures["p50_ms"], figures["p99_ms"], figures["longest_s"])],
    )
    page.head("Around the crash")
    draw_crash(out / "run", down, killed, out / "crash.svg")
    page.picture(out / "crash.svg", "space-time diagram of the crash")
    page.head("The audit of the logs")
    page.say(f"{ordered.deliveries:,} deliveries, level {ordered.level}: {'holds' if ordered.ok else 'does not hold'}.")
    add_verdict(page, ordered)
    page.head("The same traffic over plain multicast")
    page.say(f"Balances differ in {len(differ)} accounts. The audit names messages and sites:", "bad")
    page.table(("account", "main-1, cents", "main-2, cents"), differ[:8])
    add_verdict(page, unordered)
    path = out / "report.html"
    page.write(path)
    return path
