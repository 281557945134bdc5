"""The state of a `Window` as plain values: a judge that is started again goes on where it was."""

from typing import Any

import msgspec

from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Delivery, Finding, MsgId, Sent
from ordercast.verify.numbers import Numbers
from ordercast.verify.stays import Change
from ordercast.verify.window import Last, Window


class SentState(msgspec.Struct, frozen=True, array_like=True):
    """A message that was sent and is not settled."""

    msg_id: MsgId
    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    body: int | None
    post: str


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a log."""

    name: str
    rows: list[list[Any]]
    changes: list[Change]
    begins: list[GroupId]
    member: list[GroupId]
    had: dict[GroupId, Last]
    settled_at: int | None
    begun: bool
    given_up: bool
    back: bool


class WindowState(msgspec.Struct, frozen=True, array_like=True):
    """Everything that a window knows."""

    logs: list[LogState]
    sends: list[SentState]
    drops: list[MsgId]
    written: dict[SiteId, list[tuple[int, int]]]
    founders: list[SiteId]
    known: list[GroupId]
    ends: dict[GroupId, bytes]
    reached: list[tuple[SiteId, GroupId, Last]]
    kept: dict[str, int]
    not_judged: int
    unsent: int
    undone: list[str]
    broken: list[tuple[str, str]]


def snapshot(window: Window) -> WindowState:
    """Return the state of a window."""
    w = window
    logs = [
        LogState(
            name, [list(row) for row in rows], w.changes[name], sorted(w.begins[name]), sorted(w.member[name]),
            w.had.get(name, {}), w.settled_at.get(name), name in w.begun, name in w.given_up, name in w.back,
        )
        for name, rows in w.rows.items()
    ]  # fmt: skip
    sends = [
        SentState(name, sent.groups, sent.source, sent.number, sent.body, w.posts.get(name, ""))  # type: ignore[arg-type]
        for name, sent in w.sends.items()
    ]
    return WindowState(
        logs, sends, sorted(w.drops), {source: numbers.parts for source, numbers in w.numbers.items()},
        sorted(w.founders), sorted(w.known), w.ends,
        [(source, group, last) for (source, group), last in w.reached.items()],
        w.kept, w.not_judged, w.unsent, sorted(w.undone), [(name, found.says) for name, found in w.broken.items()],
    )  # fmt: skip


def restore(window: Window, state: WindowState) -> None:
    """Give a new window the state of another one."""
    w = window
    for log in state.logs:
        w.rows[log.name] = [_row(values) for values in log.rows]
        w.changes[log.name], w.begins[log.name] = list(log.changes), frozenset(log.begins)
        w.member[log.name], w.had[log.name] = set(log.member), dict(log.had)
        if log.settled_at is not None:
            w.settled_at[log.name] = log.settled_at
    w.begun.update(log.name for log in state.logs if log.begun)
    w.given_up.update(log.name for log in state.logs if log.given_up)
    w.back.update(log.name for log in state.logs if log.back)
    w._waiting = {row.msg_id for rows in w.rows.values() for row in rows}
    for sent in state.sends:
        w.sent(sent.msg_id, Sent(sent.groups, sent.source, sent.number, 0, sent.body), sent.post)
    w.numbers = {source: Numbers(parts) for source, parts in state.written.items()}
    w.founders, w.drops = set(state.founders), set(state.drops)
    w.known, w.ends = set(state.known), dict(state.ends)
    w.reached = {(source, group): last for source, group, last in state.reached}
    w.kept, w.not_judged, w.unsent, w.undone = dict(state.kept), state.not_judged, state.unsent, set(state.undone)
    w.broken = {name: Finding(name, says) for name, says in state.broken}


def _row(values: list[Any]) -> Delivery:
    row = Delivery(*values)
    return row._replace(groups=tuple(row.groups))
