"""`ordercast demo`: the main job end to end, on the bank of GS88 §1, with real processes."""

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ordercast.errors import InputError
from ordercast.show.terminal import Screen, cost_table, plan_trees

Flag = Parameter(negative="")


def demo(
    *,
    out: Path = Path("out/demo"),
    short: Annotated[bool, Flag] = False,
    local: Annotated[bool, Flag] = False,
    keep: Annotated[bool, Flag] = False,
) -> int:
    """Run a bank as a live cluster: kill the site that orders, audit the logs, compare with plain multicast, change.

    Example: ordercast demo --short --out out/demo

    Parameters
    ----------
    out
        Where the configuration, the logs, the pictures and report.html go; emptied first.
    short
        A few seconds of traffic.
    local
        Audit in this process instead of on Spark.
    keep
        Leave the cluster up at the end, for send, tail, status and explain; Ctrl-C ends it.

    """
    from ordercast.demo.bank import Bank

    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, not a folder")
    if out.exists() and any(out.iterdir()) and not (out / "cluster.toml").exists():
        raise InputError(f"{out}: is not empty, and not the folder of an earlier demo")
    shutil.rmtree(out, ignore_errors=True)
    console = Screen()
    bank = Bank(out)
    try:
        code = _show(console, bank, out, short, local)
        if keep:
            _keep(console, bank)
        return code
    finally:
        bank.stop()


def _show(console: Screen, bank: Any, out: Path, short: bool, local: bool) -> int:
    from ordercast.demo.bank import GROUPS, SENDERS
    from ordercast.demo.report import write_report
    from ordercast.demo.unordered import send_and_receive
    from ordercast.live.config import deploy, read_cluster

    many, rate = (300, 150.0) if short else (1500, 150.0)
    plan = _plan(console, bank, deploy, read_cluster, GROUPS)
    killed = plan.groups["transactions"].entry
    _step(console, 2, f"{len(bank.addresses)} sites, each a process with TCP links and a durable history.")
    for site in bank.addresses:
        bank.start(site)
    bank.wait_until_up()
    _step(
        console,
        3,
        f"{len(SENDERS) - (killed in SENDERS)} clients send {many} orders each; both main computers carry them out.",
    )
    bank.open_for_business(many, rate, seed=1, but=killed)
    time.sleep(0.4 * many / rate + 0.5)
    gone = time.time()
    bank.kill(killed)
    console.print(f"   kill -9 {killed}: it orders the transactions. Nobody else stops; its groups wait.", style="red")
    time.sleep(0.8 if short else 2.0)
    bank.start(killed)
    bank.wait_until_up()
    back = time.time()
    console.print(f"   {killed} is back after {back - gone:.1f} s, reads its history and goes on.", style="green")
    bank.wait_until_done()
    balances = bank.balances()
    same = balances["main-1"]["balances"] == balances["main-2"]["balances"]
    told = "identical" if same else "DIFFERENT"
    _step(console, 4, f"Balances of {len(balances['main-1']['balances'])} accounts at the two main computers: {told}.")
    time.sleep(2.5)  # sites write a part of the run directory every two seconds
    _step(console, 5, "The same traffic over plain multicast: a copy to each, no order between senders.")
    unordered = send_and_receive(out, many, rate, seed=1, but=killed)
    differ = [(a, unordered["main-1"][a], unordered["main-2"][a]) for a in unordered["main-1"] if unordered["main-1"][a] != unordered["main-2"][a]]  # fmt: skip # noqa: E501
    console.print(f"   Balances differ in {len(differ)} of {len(unordered['main-1'])} accounts.", style="red")
    where = "in this process" if local else "on Spark"
    _step(console, 6, f"Both logs, audited {where}.")
    good, bad = _audit([str(out / "run"), str(out / "unordered")], local)
    for name, verdict in (("ordercast", good), ("plain multicast", bad)):
        style = "green" if verdict.ok else "red"
        says = f"{verdict.deliveries:,} deliveries, level {verdict.level} {verdict.outcome}"
        console.print(f"   {name}: {says}", style=style)
        for prop, finding in verdict.broken().items():
            console.print(f"     {prop}: {finding.says}", style="red")
    grows = _changes(console, out)
    page = write_report(out, plan, killed, (gone, back), balances, good, bad, differ)
    console.print(f"\nReport: {page}", style="bold")
    return 0 if same and good.ok and not bad.ok and differ and grows else 1


def _changes(console: Screen, out: Path) -> bool:
    import asyncio

    from ordercast.demo.changing import show

    _step(console, 7, "The bank with groups that change (policy available): a site dies for good, a branch is added.")
    return asyncio.run(show(out / "changing", lambda text, style: console.print(f"   {text}", style=style)))


def _step(console: Screen, number: int, text: str) -> None:
    console.print(f"\n{number}. {text}", style="bold")


def _plan(console: Screen, bank: Any, deploy: Any, read_cluster: Any, groups: dict[str, list[str]]) -> Any:
    console.print(
        "A bank has two main computers, each with the whole database. Branches send transactions to both, so both must "
        "carry them out in one order. Fees, releases and notes go to other, overlapping groups, and where groups meet "
        "the order must still be one.\n"
    )
    for group, members in groups.items():
        console.print(f"   {group:14} {', '.join(members)}", style="cyan")
    _step(console, 1, "The plan: each group's messages enter at one site and flow down a tree.")
    plan = deploy(read_cluster(bank.path)).plan
    for tree in plan_trees(plan):
        console.print(tree)
    console.print(cost_table(plan))
    return plan


def _audit(runs: list[str], local: bool) -> list[Any]:
    from ordercast.audit.verdict import audit

    if local:
        from ordercast.audit.local import LocalSource

        return [audit(LocalSource(run), "acyclic") for run in runs]
    from ordercast.spark.session import session
    from ordercast.spark.source import SparkSource

    with session("ordercast demo") as spark:
        return [audit(SparkSource(spark, run), "acyclic") for run in runs]


def _keep(console: Screen, bank: Any) -> None:
    console.print(f"\nThe cluster is up until Ctrl-C. In another terminal, with -c {bank.path}:")
    for line in ("status", "group list", 'send transactions "deposit 3 500" --ack safe', "tail --at main-2 --after -1"):
        console.print(f"   ordercast {line}", style="cyan")
    try:
        while all(process.poll() is None for process in bank.sites.values()):
            time.sleep(0.2)
    except KeyboardInterrupt:
        console.print("stopping")
