"""KIN's joins, leaves and transfers as printed, small enough to read.

A member of groups keeps D, a number for each of them. A message of a group comes with a context, numbers of its group
and of others. T1: its own number is the next one. T2: every other number that the member also has is the same (as
repaired for errata 30).
"""

Context = dict[str, int]


class Member:
    """A member as printed: what is not ready waits, and is looked at again after each delivery."""

    def __init__(self, **numbers: int) -> None:
        self.numbers: Context = dict(numbers)
        self.waiting: list[tuple[str, Context]] = []
        self.log: list[str] = []

    def accept(self, group: str, **context: int) -> None:
        """Take a message of a group."""
        self.waiting.append((group, context))
        self.look()

    def look(self) -> None:
        """Deliver what is ready."""
        while ready := next((one for one in self.waiting if self._ready(*one)), None):
            self.waiting.remove(ready)
            group, context = ready
            self.numbers[group] = context[group]
            self.log.append(f"{group}:{context[group]}")

    def _ready(self, group: str, context: Context) -> bool:
        t1 = context[group] == self.numbers.get(group, 0) + 1
        return t1 and all(self.numbers.get(g, n) == n for g, n in context.items() if g != group)

    def joined(self, group: str, number: int) -> None:
        """GROUP-JOINED, were it to carry the number of the group, applied when it comes."""
        self.numbers[group] = number
        self.look()

    def merge(self, **context: int) -> None:
        """Rule 5: what a delivered message came after, also in groups that this site is not in, goes into D."""
        self.numbers |= {group: max(number, self.numbers.get(group, 0)) for group, number in context.items()}


class Sequencer:
    """A sequencer as printed: before it admits a member it asks the others, and records it afterwards."""

    def __init__(self, group: str, members: str) -> None:
        self.group, self.members = group, set(members)

    def shares(self, sites: set[str]) -> bool:
        """Whether its group has two of these sites in common with another one: then one sequencer must serve both."""
        return len(self.members & sites) > 1
