"""Streams that are held back at a site, each by its head: it waits for its past or for its body (errata 6, 7, 66)."""

from collections import deque
from collections.abc import Iterator

from ordercast.core.configuration import Destination
from ordercast.core.effects import Held
from ordercast.core.streams import Key
from ordercast.names import SiteId
from ordercast.planning.routes import Routes
from ordercast.protocols.propagation.bodies import Bodies
from ordercast.protocols.propagation.messages import Close, Propagate

Entry = tuple[Propagate | Close, float, int]
"""A message, since when it waits, and its number on its edge."""


class Waiting:
    """Those of one site, and what it has passed on."""

    def __init__(self, me: SiteId, routes: Routes, bodies: Bodies) -> None:
        self.me, self.routes, self.bodies = me, routes, bodies
        self.queues: dict[Key, deque[Entry]] = {}
        self.seen: dict[tuple[SiteId, Destination], int] = {}  # the last message passed on here

    def put(self, key: Key, entry: Entry) -> None:
        """Hold a message back behind its stream."""
        self.queues.setdefault(key, deque()).append(entry)

    def ready(self) -> Iterator[tuple[Key, Propagate | Close, int]]:
        """Yield the heads of streams that wait for nothing, until none is left; each is passed on before the next."""
        moved = True
        while moved:
            moved = False
            for key in sorted(self.queues):
                queue = self.queues.get(key, deque())  # empty when its part was closed just now
                while queue and self.missing(queue[0][0]) is None:
                    message, _, number = queue.popleft()
                    yield key, message, number
                    moved = True
                if not queue:
                    self.queues.pop(key, None)

    def missing(self, message: Propagate | Close) -> str | None:
        """Return what a message waits for: its body, or an earlier message that passes here and was not seen yet."""
        if isinstance(message, Close):
            return None
        if message.bare and (body := self.bodies.missing(message)):
            return body
        if not message.past:
            return None
        own = self.routes.part_of[message.envelope.groups[0]]
        for source, groups, number in message.past:
            if (
                self.seen.get((source, groups), 0) < number
                and self.routes.part_of[groups[0]] == own
                and self.routes.passes(self.me, groups)
            ):
                return f"{source}:{number} to {'+'.join(groups)} comes before it and was not seen"
        return None

    def drop(self, key_of_part: int) -> None:
        """Let go of what sources have sent in a part."""
        self.queues = {key: queue for key, queue in self.queues.items() if key[1] != key_of_part}

    def held(self) -> Iterator[Held]:
        """Say what waits, and for what."""
        for queue in self.queues.values():
            missing = self.missing(queue[0][0]) if queue else None
            for message, since, _ in queue:
                what = str(message) if isinstance(message, Close) else str(message.envelope)
                yield Held(what, missing or "it waits for nothing", since)
