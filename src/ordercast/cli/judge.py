"""`ordercast judge`: tells whether a plan is right, whoever made it."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from ordercast.membership.files import existing, read_membership
from ordercast.planning.plan import read_plan
from ordercast.show.terminal import Screen
from ordercast.verify import plans


def judge(
    plan: Path,
    membership: Path | None = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Judge a plan by its edges alone: delivered exactly once, and in which order.

    Example: ordercast judge plan.json groups.toml

    Parameters
    ----------
    plan
        A plan as `ordercast plan --json` prints it.
    membership
        The membership it should plan for.
    as_json
        Print the findings as JSON.

    """
    members = None if membership is None else read_membership(membership).as_dict()
    verdict = plans.judge(read_plan(existing(plan)), members)
    if as_json:
        found = {name: {"ok": answer.ok, "example": answer.says} for name, answer in verdict.findings.items()}
        print(msgspec.json.encode({"ok": verdict.ok, "level": verdict.level, "findings": found}).decode())
        return 0 if verdict.ok else 1
    table = Table(title=Text(f"{plan}: {'holds' if verdict.ok else 'broken'} at level {verdict.level}"))
    table.add_column("property")
    table.add_column("")
    table.add_column("example", overflow="fold")
    for name, answer in verdict.findings.items():
        table.add_row(name, Text("yes", "green") if answer.ok else Text("no", "red"), Text(answer.says))
    Screen().print(table)
    return 0 if verdict.ok else 1
