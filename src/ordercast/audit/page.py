"""The verdict as a page."""

from pathlib import Path

from ordercast.audit.verdict import Verdict
from ordercast.show.pages import Page

ROWS_AT_MOST = 20
MEANING = {
    "creation": "only what was sent is delivered, as it was sent, and only to members; an id names one message",
    "duplicate": "no site delivers a message twice",
    "completeness": "every member delivers everything",
    "body": "a message has the body that was sent, at every site (compared by hashes)",
    "fifo": "one source, one group (alone or among several): in the order sent",
    "total": "any two sites agree on the order of what both deliver",
    "acyclic": "one serial order of all messages exists",
    "epochs": "epochs never decrease along a log, and a message has one epoch everywhere",
    "classes": "groups that must be ordered together, and the unions that messages are sent to, are in one class",
    "stamps": "stamps grow along every log, class by class, and a message has one stamp everywhere",
    "causal": "what happened before a message was sent is delivered before it, where both are delivered",
}


def add_verdict(page: Page, verdict: Verdict) -> None:
    """Add the table of properties and an example of each that is broken."""
    rows = [
        (name, verdict.word(name), found.violations or "", MEANING[name]) for name, found in verdict.properties.items()
    ]
    page.table(("property", "verdict", "violations", "what it means"), rows)
    for name, found in verdict.broken().items():
        assert found.example is not None
        page.say(f"{name}: {found.says}", "bad")
        shown = [
            tuple("" if value is None else value for value in row.shown().values()) for row in found.example.deliveries
        ]
        if shown:
            page.table(("site", "position", "message", "group"), shown[:ROWS_AT_MOST])
        if len(shown) > ROWS_AT_MOST:
            page.say(f"and {len(shown) - ROWS_AT_MOST:,} more rows: see --json", "dim")
    for note in verdict.notes:
        page.say(note, "dim")


def write_page(verdict: Verdict, run: str, path: Path) -> None:
    """Write the page of one audit."""
    page = Page(f"Audit of {run}")
    says = f"{verdict.deliveries:,} deliveries: level {verdict.level} {verdict.outcome}."
    page.say(says, "good" if verdict.ok else "bad")
    add_verdict(page, verdict)
    page.write(path)
