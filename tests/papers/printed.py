"""GS88 §5.1 as printed, small enough to read: one group, its primary sites in turn, sources that are redirected.

A site queues what comes between Close and Open. When it opens a graph in which it is the primary site it delivers what
it has queued; else it throws that away and redirects the sources, message by message. A source sends to the primary
site it was told of last, and may be told by the old one only.
"""

from collections import deque


class Source:
    """Sends numbered messages to the primary site that it knows."""

    def __init__(self, primary: "Primary") -> None:
        self.primary, self.number = primary, 0
        self.redirects: deque[tuple[int, Primary]] = deque()
        """Not heard yet."""

    def send(self) -> int:
        """Send the next message; it arrives at once."""
        self.number += 1
        self.primary.arrives(self, self.number)
        return self.number

    def hear(self) -> None:
        """Hear the next redirect: send that one message again, and all later ones to the new primary site."""
        number, self.primary = self.redirects.popleft()
        self.primary.arrives(self, number)


class Primary:
    """A site that may be the primary site of the group; all members see what it delivers."""

    def __init__(self, name: str, delivered: list[int], graph: int | None = 1) -> None:
        self.name, self.delivered = name, delivered
        self.graph, self.closed = graph, graph is None
        self.last_closed = graph
        self.queue: list[tuple[Source, int]] = []
        self.opens: list[tuple[int, Primary]] = []
        """Queued: they wait until the graph before them is closed."""

    def arrives(self, source: Source, number: int) -> None:
        """Take a message of a source."""
        if self.closed:
            self.queue.append((source, number))
        else:
            self.delivered.append(number)

    def close(self) -> None:
        """Stop the graph."""
        self.closed, self.last_closed = True, self.graph

    def open(self, graph: int, primary: "Primary") -> None:
        """Open a graph, if the one before it is the last that was closed here."""
        if self.last_closed != graph - 1:
            self.opens.append((graph, primary))
            return
        self.graph, waiting, self.queue = graph, self.queue, []
        if primary is self:
            self.closed = False
            self.delivered += [number for _, number in waiting]
        else:
            for source, number in waiting:
                source.redirects.append((number, primary))
