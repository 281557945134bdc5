"""The state of a `Watch` as plain values: a judge that is started again goes on where it was."""

from collections import deque

import msgspec

from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Finding
from ordercast.verify.online import Key, Watch, _Open, _Site


class OpenState(msgspec.Struct, frozen=True, array_like=True):
    """A message that is not retired."""

    source: SiteId
    number: int
    groups: tuple[GroupId, ...]
    body: int
    missing: list[SiteId]
    first_at: int
    stamp: bytes | None
    stamped_at: SiteId


class SiteState(msgspec.Struct, frozen=True, array_like=True):
    """What a site has delivered."""

    site: SiteId
    log: list[Key]
    fifo: list[tuple[SiteId, GroupId, int]]
    stamps: list[tuple[str, bytes, Key]]


class WatchState(msgspec.Struct, frozen=True, array_like=True):
    """Everything that a judge of fifo, total and acyclic order knows; causal order and receipts have more."""

    open: list[OpenState]
    sites: list[SiteState]
    last: dict[SiteId, int]
    broken: list[tuple[str, str]]


def snapshot(watch: Watch) -> WatchState:
    """Return the state of a judge."""
    assert not (watch.causal or watch.receipts or watch.prefix), "their state is not kept"
    opened = [
        OpenState(*key, m.groups, int(m.body or 0), sorted(m.missing), m.first_at, m.stamp, m.stamped_at)  # type: ignore[call-overload]
        for key, m in watch._open.items()
    ]
    sites = [
        SiteState(
            site,
            list(at.log),
            [(*stream, number) for stream, number in at.fifo.items()],
            [(str(class_id), *last) for class_id, last in at.stamps.items()],
        )
        for site, at in watch._sites.items()
    ]
    return WatchState(opened, sites, dict(watch._last), [(name, found.says) for name, found in watch.broken.items()])


def restore(watch: Watch, state: WatchState) -> None:
    """Give a new judge of the same groups the state of another one."""
    for one in state.open:
        destinations = watch.destinations(one.groups)
        made = watch._open[one.source, one.number] = _Open(one.groups, destinations, {}, one.body)
        made.missing, made.first_at = set(one.missing), one.first_at
        made.stamp, made.stamped_at = one.stamp, one.stamped_at
    for told in state.sites:
        at = watch._sites.setdefault(told.site, _Site())
        at.log = deque(told.log)
        at.fifo = {(source, group): number for source, group, number in told.fifo}
        at.stamps = {class_id: (stamp, key) for class_id, stamp, key in told.stamps}
    watch._last.update(state.last)
    watch.broken.update({name: Finding(name, says) for name, says in state.broken})
