"""Folds of many pieces become one: per site and group what was delivered, and which sites are worth a closer look."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ordercast.types import GroupId, SiteId

Sums = tuple[int, int, int]
"""Count and two xor sums: what a set of messages is known by."""


class ShuffledError(Exception):
    """Rows of one site are spread over pieces in no order: they must be brought together first."""


@dataclass
class Merged:
    """What the whole log looks like from above."""

    rows: int = 0
    sites: dict[SiteId, tuple[int, int, int, int]] = field(default_factory=dict)
    """Count, positions at both ends, the xor sum of the sequence."""
    sets: dict[tuple[SiteId, GroupId], Sums] = field(default_factory=dict)
    stamped: dict[tuple[SiteId, GroupId], int] = field(default_factory=dict)
    classes: dict[GroupId, set[str]] = field(default_factory=dict)
    fifo: set[SiteId] = field(default_factory=set)
    epochs: set[SiteId] = field(default_factory=set)
    stamps: set[SiteId] = field(default_factory=set)
    repeated: dict[SiteId, int] = field(default_factory=dict)


def merge(folded: Any) -> Merged:
    """Merge folds of deliveries; raises ShuffledError when the pieces of a site overlap."""
    found = Merged()
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in folded.to_pylist():
        by_kind[row["kind"]].append(row)
    whole = _merge_sites(by_kind["site"], found)
    _merge_sets(by_kind["set"], found)
    _merge_runs(by_kind["run"], whole, found)
    for row in by_kind["class"]:
        found.classes.setdefault(row["group"], set()).add(row["order_class"])
    return found


def merge_sends(folded: Any) -> dict[GroupId, Sums]:
    """Merge folds of sends, per group."""
    found: dict[GroupId, Sums] = {}
    for row in folded.select(["group", "n", "x1", "x2"]).to_pylist():
        n, x1, x2 = found.get(row["group"], (0, 0, 0))
        found[row["group"]] = (n + row["n"], x1 ^ row["x1"], x2 ^ row["x2"])
    return found


def _merge_sites(rows: list[dict[str, Any]], found: Merged) -> dict[SiteId, list[tuple[int, int, bool]]]:
    """Put the pieces of each site in order; returns where they begin and end and whether no position is missing."""
    pieces: dict[SiteId, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        pieces[row["site"]].append(row)
    whole = {}
    for site, own in pieces.items():
        own.sort(key=lambda row: row["p0"])
        for one, other in pairwise(own):
            if other["p0"] < one["p1"]:
                raise ShuffledError(site)
            if other["p0"] == one["p1"]:
                found.repeated.setdefault(site, one["p1"])
            if other["first"] < one["last"]:
                found.epochs.add(site)
        sequence = 0
        for row in own:
            sequence ^= row["x1"]
            if row["bad"]:
                found.epochs.add(site)
            if row["lie_at"] >= 0:
                found.repeated.setdefault(site, row["lie_at"])
        count = sum(row["n"] for row in own)
        found.rows += count
        found.sites[site] = (count, own[0]["p0"], own[-1]["p1"], sequence)
        whole[site] = [(row["p0"], row["p1"], bool(row["whole"])) for row in own]
    return whole


def _merge_sets(rows: list[dict[str, Any]], found: Merged) -> None:
    last: dict[tuple[SiteId, GroupId, SiteId], int] = {}
    rows.sort(key=lambda row: row["p0"])
    for row in rows:
        site, group = row["site"], row["group"]
        n, x1, x2 = found.sets.get((site, group), (0, 0, 0))
        found.sets[site, group] = (n + row["n"], x1 ^ row["x1"], x2 ^ row["x2"])
        found.stamped[site, group] = found.stamped.get((site, group), 0) ^ row["xs"]
        key = (site, group, row["source"])
        if row["bad"] or row["first"] < last.get(key, row["first"]):
            found.fifo.add(site)
        last[key] = row["last"]


def _merge_runs(rows: list[dict[str, Any]], whole: dict[SiteId, list[tuple[int, int, bool]]], found: Merged) -> None:
    runs: dict[tuple[SiteId, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        runs[row["site"], row["order_class"]].append(row)
    for (site, _), own in runs.items():
        own.sort(key=lambda row: row["p0"])
        if any(row["bad"] or row["lie"] for row in own):
            found.stamps.add(site)
        before, since = None, -1
        for row in own:
            if before is None:
                early = row["prev"] is not None and _no_gap(whole[site], 0, row["p0"])
                if early and whole[site][0][0] == 0 and row["p0"] > whole[site][0][1]:
                    found.stamps.add(site)  # a previous stamp, and no previous delivery
            else:
                if before >= row["s0"]:
                    found.stamps.add(site)
                if row["prev"] != before and (row["prev"] is not None) and _no_gap(whole[site], since, row["p0"]):
                    found.stamps.add(site)
            before, since = row["s1"], row["p1"]


def _no_gap(pieces: list[tuple[int, int, bool]], begin: int, end: int) -> bool:
    """Whether every position between two is there."""
    touched = [piece for piece in pieces if piece[1] >= begin and piece[0] <= end]
    return all(piece[2] for piece in touched) and all(one[1] + 1 == other[0] for one, other in pairwise(touched))
