"""What a whole subtree has: acknowledgements that climb a tree (GS88 §3.2 has none; errata 9).

A number of an incoming stream settles when everything that was sent on because of it is acknowledged. Then this site
acknowledges it in turn: an acknowledgement says that the whole subtree below has the message. Own messages settle in
the same way, and are safe then. Numbers settle one by one, so one member that is away holds up only what is for it.
"""

from bisect import insort
from collections.abc import Callable
from typing import Any

from ordercast.core.streams import HERE, In, Key, Out, Range

RANGES_AT_MOST = 256  # ranges per acknowledgement; the others are told at the next ticks


class Settling:
    """Who waits for which acknowledgements."""

    def __init__(self, incoming: Callable[[Key], In[Any]]) -> None:
        self._incoming = incoming
        self.own: dict[int, int] = {}  # how many acknowledgements own messages wait for, by number
        self.safe: list[int] = []  # own messages that have settled; whoever reads it clears it

    def owe(self, key: Key, number: int, sent: list[Out[Any]]) -> None:
        """A number settles when what was just sent on these streams is acknowledged.

        With the key of `HERE` the number is that of an own message.
        """
        if not sent:
            self._settle(key, number)
            return
        if key[0] == HERE:
            self.own[number] = len(sent)
        else:
            self._incoming(key).owed[number] = len(sent)
        for out in sent:
            out.because[out.sent] = (key, number)

    def pay(self, key: Key, number: int) -> None:
        """One acknowledgement has come that a number waits for."""
        owed = self.own if key[0] == HERE else self._incoming(key).owed
        owed[number] -= 1
        if not owed[number]:
            del owed[number]
            self._settle(key, number)

    def _settle(self, key: Key, number: int) -> None:
        if key[0] == HERE:
            self.safe.append(number)
            return
        edge = self._incoming(key)
        edge.fresh = True
        edge.again = edge.again or number <= edge.told
        insort(edge.beyond, number)
        done = 0
        for settled in edge.beyond:
            if settled != edge.settled + 1:
                break
            edge.settled += 1
            done += 1
        del edge.beyond[:done]
        assert edge.settled < edge.expected, "settled before it was received"


def ranges_beyond(edge: In[Any]) -> tuple[Range, ...]:
    """Return what is settled beyond a gap, as ranges; when they are too many, the next ones at the next tick."""
    ranges: list[Range] = []
    for number in edge.beyond:
        if number <= edge.told:
            continue
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        elif len(ranges) == RANGES_AT_MOST:
            edge.fresh, edge.told = True, ranges[-1][1]
            return tuple(ranges)
        else:
            ranges.append((number, number))
    edge.told, edge.fresh, edge.again = 0, edge.again, False
    return tuple(ranges)
