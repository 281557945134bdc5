"""Applications of a world of nodes: they send, wait for receipts, read, stop reading, leave, and resume."""

from dataclasses import dataclass

from ordercast.client.values import AckLevel, Gap, Policy, said_in
from ordercast.errors import DroppedError, LocalError, OrdercastError
from ordercast.names import GroupId
from ordercast.node import inputs as io
from ordercast.node.readers import Reader
from ordercast.sim.ledger import Reading
from ordercast.sim.nodes import Host

SIZES = (0, 5, 20, 20, 60, 200)
RETRY_S = 0.2


class Sender:
    """Sends messages at random times, one by one or several as a batch; patient ones wait for each answer."""

    def __init__(
        self, host: Host, destinations: list[tuple[GroupId, ...]], messages: int, every: float, *, patient: bool
    ) -> None:
        self.host, self.destinations, self.left, self.every, self.patient = host, destinations, messages, every, patient
        self.begins = 0.0  # seconds after its site
        self.said: OrdercastError | None = None  # why a message was refused
        self._waits_for: tuple[str, ...] | None = None
        host.on_start.append(self._began)

    def _began(self) -> None:
        self._waits_for = None
        self.host.later(self.begins, self._next)

    def _next(self) -> None:
        if self.left > 0:
            self.host.later(self.host.world.chance.expovariate(1 / self.every), self._send)

    def answered(self, names: tuple[str, ...]) -> None:
        """An answer came; who waited for it goes on."""
        if names == self._waits_for:
            self._waits_for = None
            self._next()

    def _send(self) -> None:
        chance = self.host.world.chance
        many = chance.choice([1, 1, 2, 3, 5])
        self.left -= many
        names = self.burst(many) if chance.random() < 0.6 else self._post(self._where(), many, self._ack())
        if self.host.runs and chance.random() < 0.1:  # at once behind what is still open
            names = self._post(self._where(), 1, self._ack())
        if self.host.runs and chance.random() < 0.1 and len(flush := self.host.world.ledger.flush(self.host.me)) > 1:
            self.host.feed(io.Flush(flush))
        if not self.host.runs:
            return
        if names is not None and self.patient:
            self._waits_for = names
            if names in self.host.world.ledger.open:
                return
        if names is not None and chance.random() < 0.05:
            self.host.later(chance.expovariate(50), self._withdraw, names)
        self._next()

    def _where(self) -> tuple[GroupId, ...]:
        return self.host.world.chance.choice(self.destinations)

    def _ack(self) -> AckLevel:
        return self.host.world.chance.choice(["none", "ordered", "safe"]) if self.host.node.receipts else "none"

    def burst(self, many: int) -> tuple[str, ...] | None:
        """Send one by one in one moment, often to changing destinations; returns what is waited for last."""
        changing = self.host.world.chance.random() < 0.5
        groups, ack = self._where(), self._ack()
        last: tuple[str, ...] | None = None
        for _ in range(many):
            if changing:
                groups, ack = self._where(), self._ack()
            try:
                last = self._add(groups, ack) or last
            except OrdercastError as error:
                self.said = error
                return last
            if not self.host.runs:
                return None
        return last

    def _add(self, groups: tuple[GroupId, ...], ack: AckLevel) -> tuple[str, ...] | None:
        """Send one message, as `Site.multicast` does; returns what is waited for, if anything."""
        host, ledger = self.host, self.host.world.ledger
        name = self._attempt(groups, ack)
        token, body = (name,), ledger.attempts[name].body
        if ack != "none":
            ledger.waits(token, ack)
        try:
            taken = host.node.outbox.add(groups, body, ack, token if ack != "none" else None)
        except OrdercastError:
            ledger.refused(token)
            raise
        if not taken:
            ledger.open.pop(token, None)
            self._feed_post(io.Post(groups, [body], ack, token))
            return token
        ledger.took(token)
        ledger.attempts[name].added = True
        if host.node.outbox.stirred:
            host.carry(host.node.turn())
        return token if ack != "none" else None

    def _post(self, groups: tuple[GroupId, ...], many: int, ack: AckLevel) -> tuple[str, ...] | None:
        ledger = self.host.world.ledger
        names = tuple(self._attempt(groups, ack) for _ in range(many))
        self._feed_post(io.Post(groups, [ledger.attempts[name].body for name in names], ack, names))
        return names

    def _feed_post(self, post: io.Post) -> None:
        ledger = self.host.world.ledger
        ledger.waits(post.token, post.ack)
        ledger.took(post.token)
        self.host.feed(post)
        if self.host.told_lost and not ledger.attempts[post.token[0]].failed:
            ledger.problem("lost", f"{self.host.site} knows that it has lost its history, and takes {post.token[0]}")

    def _attempt(self, groups: tuple[GroupId, ...], ack: AckLevel) -> str:
        world, host = self.host.world, self.host
        return world.ledger.attempt(host.me, groups, ack, world.chance.choice(SIZES), host.node.peers.epoch)

    def _withdraw(self, names: tuple[str, ...]) -> None:
        if names in self.host.world.ledger.open:
            self.host.world.ledger.withdrawn(names)
            self.host.feed(io.Withdraw(names))

    def last_words(self) -> None:
        """Send one message to each destination: the world is calm, so all must arrive."""
        for groups in self.destinations:
            if self.host.runs:
                self._post(groups, 1, "safe" if self.host.node.receipts else "none")


@dataclass(frozen=True)
class Habits:
    """How an application reads."""

    groups: frozenset[GroupId] | None = None
    policy: Policy = "block"
    every: float = 0.0
    """Seconds from one batch to the next, about."""
    stops: float = 0.0
    """How likely it stops reading for a while after a batch."""
    leaves: float = 0.0
    """How likely it leaves after a batch, and comes back to its position later."""
    goes: float = 0.0
    """How likely it does not come back."""


class Application:
    """Reads; it stores the position of what it has read, and resumes there after everything."""

    def __init__(self, host: Host, name: str, habits: Habits) -> None:
        self.host, self.name, self.habits = host, name, habits
        self.calm = self.gone = False
        self.ended: OrdercastError | None = None
        self.refused: OrdercastError | None = None
        self.reading: Reading | None = None
        self._reader: Reader | None = None
        self._takes = False  # it will look for more by itself
        host.on_start.append(self._began)

    def _began(self) -> None:
        self._reader, self._takes = None, False
        if self.reading is None or not self.host.world.settings.durable:
            self.reading = Reading(self.host.me, self.name, self.habits.groups, 0)
        self._open()

    def _open(self) -> None:
        """Open a reader behind what was read; a site that keeps no history has nothing past."""
        host, reading = self.host, self.reading
        if self._reader is not None or reading is None or self.gone:
            return
        groups = sorted(reading.groups) if reading.groups is not None else None
        after: int | None = reading.next - 1
        if not host.world.settings.durable:
            after, reading.next = None, host.node.deliveries.count
        try:
            self._reader = host.node.reader(self.name, groups, after, self.habits.policy)
        except LocalError as error:
            self.refused = error
            return
        self.ended = None
        host.on_more[self._reader] = self._more
        host.carry(host.node.turn())
        if host.runs:
            self._more()

    def _more(self) -> None:
        """There is something new: read it in our own time."""
        if not self._takes and self._reader is not None:
            self._takes = True
            every = 0.0 if self.calm else self.habits.every
            self.host.later(self.host.world.chance.expovariate(1 / every) if every else 0.0, self._take, self._reader)

    def _take(self, reader: Reader) -> None:
        self._takes = False
        if self._reader is not reader or self.reading is None:
            return
        lot = reader.take()
        if lot is None:
            if reader.ended is not None:
                self._check_end(reader.ended)
                self._forget(reader.ended)
                self.host.later(RETRY_S, self._open)
            return
        gap = said_in(lot)
        if isinstance(gap, Gap):
            self.host.world.ledger.skipped(self.reading, gap, asked=self.habits.policy == "gap")
        else:
            self.host.world.ledger.read(self.reading, lot)
        if reader.past or self.host.node.intake.parked:
            self.host.feed(io.Took(reader))
        if self.host.runs:
            self._go_on(reader)

    def _check_end(self, error: OrdercastError) -> None:
        """Who is dropped is told where to read on."""
        assert self.reading is not None
        told = error.after + 1 if isinstance(error, DroppedError) else self.reading.next
        if told != self.reading.next and (told < self.reading.next or self.reading.groups is None):
            says = (
                f"reader {self.name} of {self.host.site} is told to read on at {told}, and has read {self.reading.next}"
            )
            self.host.world.ledger.problem("readers", says)

    def _go_on(self, reader: Reader) -> None:
        chance, habits = self.host.world.chance, self.habits
        if not self.calm and chance.random() < habits.leaves:
            self._forget(None)
            self.gone = chance.random() < habits.goes
            self.host.feed(io.Leave(reader))
            self.host.later(chance.expovariate(2), self._open)
        elif not self.calm and chance.random() < habits.stops:
            self._takes = True
            self.host.later(chance.expovariate(1), self._resume, reader)
        else:
            self._more()

    def _resume(self, reader: Reader) -> None:
        if reader is self._reader:
            self._takes = False
            self._more()

    def _forget(self, ended: OrdercastError | None) -> None:
        self.host.on_more.pop(self._reader, None)
        self._reader, self._takes, self.ended = None, False, ended

    def calm_down(self) -> None:
        """Read everything from now on, fast."""
        self.calm = True
        if self.host.runs:
            self._open()
            self._more()
