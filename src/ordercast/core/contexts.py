"""Sequence contexts (KIN §4.1): for each group the number reached."""

from ordercast.names import GroupId

Numbers = tuple[tuple[GroupId, int], ...]
"""A context as a value."""


class Past:
    """A context that grows: C_p of KIN §5."""

    def __init__(self) -> None:
        self.entries: dict[GroupId, int] = {}

    def merge(self, context: Numbers) -> None:
        """Take the larger of both, entry by entry; an entry never falls (errata 33)."""
        for group, number in context:
            self.entries[group] = max(self.entries.get(group, 0), number)

    def merged(self, context: Numbers) -> Numbers:
        """Return both as a value, entry by entry the larger; this one stays as it is."""
        both = Past()
        both.merge(self.frozen())
        both.merge(context)
        return both.frozen()

    def frozen(self) -> Numbers:
        """Return the context as a value, sorted."""
        return tuple(sorted(self.entries.items()))
