"""Delivery logs by the million, made from nothing: one serial order, every site's share of it, and faults to plant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ordercast.membership.table import Membership
from ordercast.names import ClassRule, GroupId, SiteId
from ordercast.planning.classes import classes
from ordercast.runs.writer import write_table

Rows = dict[str, NDArray[Any]]
"""One site's log: message (its place in the serial order), and the columns of a run directory."""

RING = {"ring-a": ["p", "q"], "ring-b": ["q", "r"], "ring-c": ["r", "p"]}
OVERLAPPING = {f"g{index}": [f"s{(index * 3 + step) % 12:02d}" for step in range(6)] for index in range(8)} | RING
"""Eight groups of six among twelve sites, and three groups in a ring that share one site each."""


@dataclass
class Logs:
    """A run: what was sent, and what each site delivered, in order."""

    members: Mapping[GroupId, Sequence[SiteId]]
    sends: Rows
    sites: dict[SiteId, Rows] = field(default_factory=dict)
    stamped: bool = True
    bodies: bool = True
    """Whether both tables carry a hash of the bodies."""

    def write(self, folder: Path, parts: int = 1) -> None:
        """Write the run directory; each site's log in so many files."""
        text = pa.string()
        pairs = [(site, group) for group, sites in self.members.items() for site in sites]
        membership = pa.table([[s for s, _ in pairs], [g for _, g in pairs]], names=["site", "group"])
        _write(folder / "membership" / "part-0.parquet", membership)
        sends = {name: pa.array(self.sends[name]).cast(text) for name in ("msg_id", "group", "source")}
        sends["source_seq"] = pa.array(self.sends["source_seq"])
        sends["sent_at"] = pa.array(np.arange(len(self.sends["msg_id"])) * 1e-4)
        if self.bodies:
            sends["body_hash"] = pa.array(self.sends["body_hash"])
        _write(folder / "sends" / "part-0.parquet", pa.table(sends))
        for site, rows in self.sites.items():
            table = self._table(site, rows)
            cut = -(-len(table) // parts) or 1
            for part in range(parts):
                _write(folder / "deliveries" / f"{site}-{part}.parquet", table.slice(part * cut, cut))

    def _table(self, site: SiteId, rows: Rows) -> Any:
        count = len(rows["message"])
        position = rows.get("position", np.arange(count))
        columns: dict[str, Any] = {"site": pa.array(np.full(count, site)).cast(pa.string()), "position": position}
        for name in ("msg_id", "group", "source"):
            columns[name] = pa.array(rows[name]).cast(pa.string())
        columns |= {"source_seq": rows["source_seq"], "epoch": rows["epoch"], "delivered_at": position * 1e-4}
        if self.stamped:
            columns["order_class"] = pa.array(rows["order_class"]).cast(pa.string())
            columns["stamp"] = pa.array(rows["stamp"], pa.binary())
            columns["prev_stamp"] = pa.array(previous(rows) if "prev_stamp" not in rows else rows["prev_stamp"])
        if self.bodies:
            columns["body_hash"] = rows["body_hash"]
        return pa.table(columns)


def _write(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, path)


def previous(rows: Rows) -> NDArray[np.object_]:
    """Return the stamp of the previous delivery of the same class."""
    found = np.full(len(rows["stamp"]), None, np.object_)
    for name in np.unique(rows["order_class"]):
        own = np.flatnonzero(rows["order_class"] == name)
        found[own[1:]] = rows["stamp"][own[:-1]]
    return found


def make_logs(
    deliveries: int, members: Mapping[GroupId, Sequence[SiteId]] = OVERLAPPING, *, sources: int = 20, seed: int = 0
) -> Logs:
    """Make about so many deliveries: two epochs, stamps of epoch and place, classes `blocks`."""
    random = np.random.default_rng(seed)
    names = np.array(list(members))
    share = np.array([len(members[group]) for group in names])
    messages = int(deliveries / share.mean())
    group = random.integers(len(names), size=messages)
    source = random.integers(sources, size=messages)
    number = np.empty(messages, np.int64)
    for one in range(sources):
        own = source == one
        number[own] = np.arange(1, own.sum() + 1)
    sender = np.array([f"c{one:02d}" for one in range(sources)])[source]
    msg_id = np.char.add(np.char.add(sender, ":"), number.astype(str))
    epoch = np.where(np.arange(messages) < messages // 2, 1, 2)
    heads = np.stack([epoch, np.arange(messages)], axis=1).astype(">u8")
    stamp = np.array([row.tobytes() for row in heads], np.object_)
    label = {name: together[0] for together in classes(Membership.of(members), ClassRule.BLOCKS) for name in together}
    order_class = np.array([label[name] for name in names])[group]
    every: Rows = {
        "message": np.arange(messages),
        "msg_id": msg_id,
        "group": names[group],
        "source": sender,
        "source_seq": number,
        "epoch": epoch,
        "stamp": stamp,
        "order_class": order_class,
        "body_hash": random.integers(-(2**63), 2**63, size=messages),
    }
    logs = Logs(members, every)
    for site in sorted({site for sites in members.values() for site in sites}):
        own = np.isin(group, [index for index, name in enumerate(names) if site in members[name]])
        logs.sites[site] = {name: values[own] for name, values in every.items()}
    return logs


# Faults. Each changes a log in the middle and returns the properties that are broken then.


def _reorder(rows: Rows, order: Any) -> None:
    for name in rows:
        rows[name] = rows[name][order]


def _exchange(rows: Rows, one: int, other: int, *, but: tuple[str, ...] = ()) -> None:
    for name in rows.keys() - set(but):
        values = rows[name].copy()
        values[[one, other]] = values[[other, one]]
        rows[name] = values


def _move(rows: Rows, row: int, to: int) -> None:
    order = list(range(len(rows["message"])))
    order.insert(to, order.pop(row))
    _reorder(rows, order)


def _shared(logs: Logs, site: SiteId, other: SiteId) -> list[int]:
    """Two neighbours in the middle of a log, from different sources, that the other site has too."""
    rows, there = logs.sites[site], set(logs.sites[other]["message"].tolist())
    for at in range(len(rows["message"]) // 3, len(rows["message"])):
        both = rows["message"][at : at + 2].tolist()
        if set(both) <= there and len(set(rows["source"][at : at + 2])) == 2:
            return [at, at + 1]
    raise AssertionError("no such pair")


def swap_at_one_site(logs: Logs) -> set[str]:
    """One site delivers two messages the other way round."""
    one, other = _shared(logs, "s03", "s05")
    _exchange(logs.sites["s03"], one, other)
    return {"total", "acyclic", "stamps"}


def swap_inside_a_metagroup(logs: Logs) -> set[str]:
    """Two sites of exactly the same groups disagree, about messages that nobody else gets both of."""
    rows = logs.sites["twin-1"]
    groups, sources = rows["group"].tolist(), rows["source"].tolist()
    middle = range(len(groups) // 2, len(groups))
    one = next(at for at in middle if {*groups[at : at + 2]} == {"twins", "g7"} and sources[at] != sources[at + 1])
    _exchange(rows, one, one + 1)
    return {"total", "acyclic", "stamps"}


def loss(logs: Logs) -> set[str]:
    """A site never delivers one message; its positions close up and its previous stamps are honest."""
    rows = logs.sites["s04"]
    _reorder(rows, np.delete(np.arange(len(rows["message"])), 1000))
    return {"completeness"}


def duplicate_hiding_a_loss(logs: Logs) -> set[str]:
    """A message stands twice in a log, the second time where another should."""
    rows = logs.sites["s06"]
    group = rows["group"]
    later = next(at for at in range(2000, len(group)) if group[at] == group[1500])
    for name in rows:
        values = rows[name].copy()
        values[later] = values[1500]
        rows[name] = values
    return {"duplicate", "completeness"}


def delivery_to_a_stranger(logs: Logs) -> set[str]:
    """A site delivers a message of a group that it is not in."""
    rows, alien = logs.sites["p"], logs.sites["s02"]
    for name in rows:
        rows[name] = np.append(rows[name], alien[name][-1:])
    return {"creation"}


def fifo_break(logs: Logs) -> set[str]:
    """Two messages of one source to one group change places everywhere; all agree, and the stamps fit."""
    rows = logs.sites["s00"]
    key = np.char.add(rows["group"], rows["source"])
    one = len(key) // 2
    other = next(at for at in range(one + 1, len(key)) if key[at] == key[one])
    first, then = rows["message"][one], rows["message"][other]
    for own in logs.sites.values():
        a, b = np.flatnonzero(own["message"] == first), np.flatnonzero(own["message"] == then)
        if len(a) and len(b):
            _exchange(own, int(a[0]), int(b[0]), but=("stamp", "epoch"))
    return {"fifo"}


def forged_stamp(logs: Logs) -> set[str]:
    """One site gives a message a stamp of its own that still fits in."""
    rows = logs.sites["s07"]
    stamps = rows["stamp"].copy()
    stamps[3000] = stamps[2999] + b"\x01"
    rows["stamp"] = stamps
    return {"stamps"}


def forged_previous_stamp(logs: Logs) -> set[str]:
    """Two rows are exchanged, and previous stamps rewritten so that each row looks fine by itself."""
    one, other = _shared(logs, "s03", "s05")
    rows = logs.sites["s03"]
    rows["prev_stamp"] = previous(rows)
    _exchange(rows, one, other)
    return {"total", "acyclic", "stamps"}


def cycle_of_three(logs: Logs) -> set[str]:
    """Three sites, three groups: every two sites agree, and no serial order exists."""
    p, q, r = (logs.sites[name] for name in "pqr")
    at = next(index for index in range(len(q["group"]) // 2, len(q["group"])) if q["group"][index] == "ring-a")
    a = q["message"][at]
    b_at = next(index for index in range(at, len(q["group"])) if q["group"][index] == "ring-b")
    b = q["message"][b_at]
    _move(q, b_at, at)
    in_r = int(np.flatnonzero(r["message"] == b)[0])
    c_at = next(index for index in range(in_r, len(r["group"])) if r["group"][index] == "ring-c")
    c = r["message"][c_at]
    _move(r, c_at, in_r)
    assert np.flatnonzero(p["message"] == a)[0] < np.flatnonzero(p["message"] == c)[0]
    return {"acyclic", "stamps"}


def cross_epoch_inversion(logs: Logs) -> set[str]:
    """One site delivers the last message of an epoch after the first of the next."""
    rows = logs.sites["s01"]
    at = int(np.argmax(rows["epoch"] == 2))
    _exchange(rows, at - 1, at)
    return {"epochs", "total", "acyclic", "stamps"}


def other_body(logs: Logs) -> set[str]:
    """Issue 12: a site that lost its disk delivers other bodies under the ids of old messages."""
    rows = logs.sites["s08"]
    hashes = rows["body_hash"].copy()
    hashes[2000] ^= 1
    rows["body_hash"] = hashes
    return {"body"}


def class_too_fine(logs: Logs) -> set[str]:
    """Two groups that the level wants together are called two classes."""
    for rows in logs.sites.values():
        rows["order_class"] = np.where(rows["group"] == "ring-b", "ring-b", rows["order_class"])
    return {"classes"}


def missing_tail(logs: Logs) -> set[str]:
    """A log ends early."""
    rows = logs.sites["s02"]
    _reorder(rows, np.arange(len(rows["message"]) - 500))
    return {"completeness"}


FAULTS: dict[str, Callable[[Logs], set[str]]] = {
    fault.__name__: fault
    for fault in (
        swap_at_one_site, swap_inside_a_metagroup, loss, duplicate_hiding_a_loss, delivery_to_a_stranger, fifo_break,
        forged_stamp, forged_previous_stamp, cycle_of_three, cross_epoch_inversion, other_body,
        class_too_fine, missing_tail,
    )
}  # fmt: skip
TWINS = OVERLAPPING | {"twins": ["twin-1", "twin-2"], "g7": [*OVERLAPPING["g7"], "twin-1", "twin-2"]}
"""With two sites of exactly the same groups."""
