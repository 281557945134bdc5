"""The sender's side of the sequencing service: requests in order, and what they came after (KIN §5).

KIN §5 lets a sender go on without waiting, its unnumbered messages standing in C_p by their id. Across sequencers that
deadlocks: x sends b1 to G, then a2 to H; y sends b2 to H, then a1 to G; G sequences a1 before b1, H a2 before b2, and
a member of both waits in a circle (T1, CT2, T1, CT2). So requests to one sequencer are pipelined, which takes them in
order anyway, and a request to another waits here until what was sent before has its number. The application never
waits, and every entry of a context is a number. What a pipelined request came after, the sequencer adds: the numbers of
its sender's earlier requests, which the sender did not know yet.
"""

from collections import deque
from collections.abc import Callable, Container

import msgspec

from ordercast.core.contexts import Numbers, Past
from ordercast.core.effects import Held
from ordercast.core.events import Envelope
from ordercast.names import GroupId
from ordercast.protocols.sequencing.messages import DoMulticast
from ordercast.protocols.sequencing.sequencer import UNDER_WAY_AT_MOST

REPEAT_AT_MOST = 256  # requests per tick


class SenderState(msgspec.Struct, array_like=True):
    """The whole state."""

    counted: dict[int, int]
    unsent: list[tuple[Envelope, float]]
    asking: dict[int, dict[int, tuple[DoMulticast, float]]]
    past: Numbers
    repeated: dict[int, float]

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was repeated, and when."""
        asking = {part: [request for request, _ in asked.values()] for part, asked in self.asking.items()}
        return self.counted, [envelope for envelope, _ in self.unsent], asking, self.past


class Sender:
    """What a site has sent and has no number yet."""

    def __init__(
        self, part_of: Callable[[GroupId], int], own: Container[int],
        *, causal: bool, patience: float, direct_bytes: int,
    ) -> None:  # fmt: skip
        """`own`: the parts this site sequences. Bodies of `direct_bytes` or more go to members directly; 0: none."""
        self.part_of, self.own, self.causal, self.patience = part_of, own, causal, patience
        self.direct_bytes = direct_bytes
        self.counted: dict[int, int] = {}  # requests per part
        self.unsent: deque[tuple[Envelope, float]] = deque()  # waiting for their turn
        self.asking: dict[int, dict[int, tuple[DoMulticast, float]]] = {}  # not yet ACCEPTed, per part, by count
        self.past = Past()  # C_p
        self.repeated: dict[int, float] = {}  # when requests were last repeated, per part

    def requests(self, now: float) -> list[tuple[int, DoMulticast]]:
        """Return what may go: with `causal`, not while a request to another sequencer has no number yet."""
        ready: list[tuple[int, DoMulticast]] = []
        while self.unsent:
            envelope, _ = self.unsent[0]
            part = self.part_of(envelope.groups[0])
            if self.causal and any(asking for other, asking in self.asking.items() if other != part):
                break
            asking = self.asking.setdefault(part, {})
            count = self.counted.get(part, 0) + 1
            if count - next(iter(asking), count) >= UNDER_WAY_AT_MOST:
                break  # the sequencer keeps so many answers: the oldest request may still have to be repeated
            self.unsent.popleft()
            self.counted[part] = count
            direct = 0 < self.direct_bytes <= len(envelope.body) and part not in self.own
            request = DoMulticast(envelope, count, self.past.frozen() if self.causal else (), direct)
            asking[count] = (request, now)
            ready.append((part, request))
        return ready

    def waits_for(self, part: int, count: int) -> bool:
        """Whether a request has no number yet."""
        return count in self.asking.get(part, ())

    def accepted(self, part: int, count: int, numbers: Numbers) -> bool:
        """Rule 2: our message has its numbers; they can only raise C_p (errata 33). Returns whether that is news."""
        if self.asking.get(part, {}).pop(count, None) is None:
            return False
        self.past.merge(numbers)
        return True

    def body(self, part: int, count: int) -> bytes:
        """Return the body of a request that has no number yet; nothing when there is none."""
        asked = self.asking.get(part, {}).get(count)
        return b"" if asked is None else asked[0].envelope.body

    def repeats(self, now: float) -> list[tuple[int, DoMulticast]]:
        """Return what is to be asked again, because it was not accepted for long; not what this site sequences."""
        again: list[tuple[int, DoMulticast]] = []
        for part, asking in self.asking.items():
            if part in self.own or now - self.repeated.get(part, now - self.patience) < self.patience:
                continue
            for request, since in list(asking.values())[:REPEAT_AT_MOST]:
                if since < now:
                    self.repeated[part] = now
                    again.append((part, request))
        return again

    def answered(self, part: int) -> int:
        """Return up to which count all requests have their numbers."""
        return next(iter(self.asking.get(part, ())), self.counted.get(part, 0) + 1) - 1

    def held(self) -> list[Held]:
        """What waits here."""
        asks = [
            Held(str(request), "not accepted yet", since)
            for asking in self.asking.values()
            for request, since in asking.values()
        ]
        return asks + [
            Held(str(envelope), "earlier requests of this site have no number yet", since)
            for envelope, since in self.unsent
        ]

    @property
    def under_way(self) -> int:
        """How many messages have no number yet."""
        return sum(map(len, self.asking.values())) + len(self.unsent)

    def snapshot(self) -> SenderState:
        """Return the whole state."""
        return SenderState(
            dict(sorted(self.counted.items())),
            list(self.unsent),
            {part: asking for part, asking in sorted(self.asking.items()) if asking},
            self.past.frozen(),
            dict(sorted(self.repeated.items())),
        )

    def restore(self, state: SenderState) -> None:
        """Take over a state."""
        self.counted, self.asking, self.repeated = state.counted, state.asking, state.repeated
        self.unsent = deque(state.unsent)
        self.past = Past()
        self.past.merge(state.past)
