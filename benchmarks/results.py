"""Writes one section of benchmarks/RESULTS.md and leaves the others as they are."""

import os
import platform
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = """# Results

Every table is written by the program named under it (`make bench`, `make sim`). The machine is shared and noisy:
compare figures within one table, which come from one run, not across tables.
"""


def record(title: str, command: str, lines: list[str]) -> None:
    """Replace the section with this title, or append it."""
    sections: dict[str, str] = {}
    if RESULTS.exists():
        for part in RESULTS.read_text("utf-8").split("\n## ")[1:]:
            name, _, body = part.partition("\n")
            sections[name] = body.strip("\n")
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    sections[title] = "\n".join(["", f"`{command}`, {where}", "", *lines])
    text = HEAD + "".join(f"\n## {name}\n{body}\n" for name, body in sections.items())
    RESULTS.write_text(text, "utf-8")
    print("\n".join([title, *lines]))


def table(head: list[str], rows: list[list[object]]) -> list[str]:
    """Format rows as a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
