"""A set of numbers that come nearly in order."""

from bisect import bisect_right
from collections.abc import Iterable


class Numbers:
    """A set of numbers that come nearly in order, as intervals."""

    def __init__(self, parts: Iterable[tuple[int, int]] = ()) -> None:
        self.parts = [(begin, end) for begin, end in parts]

    def add(self, first: int, last: int) -> None:
        """Add the numbers from one to another."""
        begin = bisect_right(self.parts, first - 1, key=lambda part: part[1])
        begin -= begin > 0 and self.parts[begin - 1][1] == first - 1
        end = bisect_right(self.parts, last + 1, key=lambda part: part[0])
        merged = [(first, last), *self.parts[begin:end]]
        self.parts[begin:end] = [(min(part[0] for part in merged), max(part[1] for part in merged))]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.parts, number, key=lambda part: part[0])
        return place > 0 and number <= self.parts[place - 1][1]
