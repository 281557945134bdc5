"""Sequence contexts (KIN §4.1): for each group the number reached, and messages known only by their id (KIN §5).

An entry is a number and a set of ids: SEQ(id) stands for the number a message will get (errata 41: such an id, the
k-th message of x to the group, is satisfied where k messages of x were delivered in that group).
"""

from ordercast.types import GroupId, SiteId

Ids = frozenset[tuple[SiteId, int]]
Context = tuple[tuple[GroupId, int, Ids], ...]
EMPTY: Ids = frozenset()


class Past:
    """A context that grows: C_p of KIN §5, by group."""

    def __init__(self) -> None:
        self.entries: dict[GroupId, tuple[int, dict[SiteId, int]]] = {}

    def merge(self, context: Context) -> None:
        """Take the larger of both, entry by entry; ids are kept beside the number, the latest per source."""
        for group, number, ids in context:
            known, latest = self.entries.get(group, (0, {}))
            for source, count in ids:
                latest[source] = max(latest.get(source, 0), count)
            self.entries[group] = (max(known, number), latest)

    def frozen(self) -> Context:
        """Return the context as a value, sorted."""
        return tuple((g, n, frozenset(latest.items())) for g, (n, latest) in sorted(self.entries.items()))
