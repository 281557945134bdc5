"""`ordercast demo`: the main job end to end, on the bank of GS88 §1. At this stage: its plan and the picture."""

from pathlib import Path

from ordercast.cli.render import Screen
from ordercast.errors import InputError

BANK = """\
# The bank of GS88 section 1: main computers, branches, development machines.
[groups]
transactions  = ["main-1", "main-2"]
system-tables = ["main-1", "main-2", "dev-1"]
releases      = ["main-1", "main-2", "dev-1", "dev-2",
                 "branch-a", "branch-b", "branch-c"]
rates         = ["main-1", "branch-a", "branch-b", "branch-c"]
audit         = ["main-2", "dev-2"]
"""


def demo(*, out: Path = Path("out/demo")) -> int:
    """Plan the bank of GS88 section 1 and draw the plan.

    Example: ordercast demo --out out/demo

    Parameters
    ----------
    out
        Where to write the membership, the plan and the picture.

    """
    from ordercast.cli.main import run

    console = Screen()
    groups, picture = out / "bank.toml", out / "plan.svg"
    try:
        out.mkdir(parents=True, exist_ok=True)
        groups.write_text(BANK, "utf-8")
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}") from None
    console.print(
        "A bank has two main computers, each with the whole database. Branches send transactions to both, so both must "
        "execute them in one order. System tables and releases go to other, overlapping groups, and where groups meet "
        "the order must still be one. This is who is in which group:\n"
    )
    console.print(BANK, style="cyan")
    console.print("The plan: each group's messages enter at one site and flow down a tree of FIFO edges.\n")
    code = run(["plan", str(groups), "--budget", "50000steps", "--picture", str(picture)])
    console.print("\nHow the planners compare:\n")
    return code or run(["plan", str(groups), "--budget", "50000steps", "--compare"])
