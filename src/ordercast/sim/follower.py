"""The application of a site in a world of changing nodes."""

from typing import TYPE_CHECKING

from ordercast.client.values import Lot, said_in
from ordercast.names import Delivery
from ordercast.node import inputs as io
from ordercast.node.readers import Reader
from ordercast.sim.following import Following, name_in

if TYPE_CHECKING:
    from ordercast.sim.changing_nodes import ChangingHost


class Follower(Following):
    """The application of a site: it keeps what it has read, and where, on a disk of its own."""

    def __init__(self, host: "ChangingHost") -> None:
        super().__init__(host.site, set())
        self.host, self.calm = host, False
        self.forget()
        host.on_start.append(self._open)

    def forget(self) -> None:
        """Begin with nothing."""
        setup = None if self.host.empty else self.host.first
        self.begin({group for group in setup.groups if self.site in setup.members(group)} if setup else set())
        self.asked: list[io.TakeSnapshot] = []
        self._reader: Reader | None = None
        self._takes = False

    def _open(self) -> None:
        host = self.host
        self._takes = False
        self._reader = host.node.reader("tail", None, self.next - 1, "block")
        host.on_more[self._reader] = self._more
        host.carry(host.node.turn())
        if host.runs:
            self._more()
            self.give()

    def _more(self) -> None:
        if not self._takes and self._reader is not None:
            self._takes = True
            chance = self.host.world.chance
            stops = not self.calm and chance.random() < self.host.world.case.lazy
            self.host.later(chance.expovariate(2) if stops else 0.0, self._take, self._reader)

    def _take(self, reader: Reader) -> None:
        if reader is not self._reader:
            return
        self._takes = False
        lot = reader.take()
        if lot is None:
            return
        self._read(lot)
        self.give()
        if self.host.runs and (reader.past or self.host.node.intake.parked):
            self.host.feed(io.Took(reader))
        if self.host.runs:
            self._more()

    def give(self) -> None:
        """Give the states that were asked for, as they are where they were asked for."""
        for output in list(self.asked):
            if self.next >= output.position:
                if self.next > output.position:
                    self.host.world.judge.problem("states", f"{self.host.site} is asked for a state that is over")
                self.asked.remove(output)
                groups = self.host.world.judge.at(self.host.site).groups
                states = tuple((group, "\n".join(groups.get(group, [])).encode()) for group in output.groups)
                late = self.host.world.chance.choice([0.0, 0.0, 0.5])
                self.host.later(late, self.host.feed, io.Snapshotted(output.number, states))

    def _read(self, lot: Lot) -> None:
        world = self.host.world
        if lot.source:
            for message in lot.messages():
                attempt = world.ledger.attempts.get(name_in(message.body))
                if attempt is not None and attempt.body != message.body:
                    world.judge.problem("creation", f"{self.site} reads {name_in(message.body)} with another body")
        elif world.trace is not None:
            world.note(f"{self.site} reads {said_in(lot)}")
        self.take(lot, world.judge, safe=self._all_safe)

    @property
    def _all_safe(self) -> bool:
        return all(group.delivery is Delivery.SAFE for group in self.host.world.case.setup.groups.values())

    def calm_down(self) -> None:
        """Read everything from now on, at once."""
        self.calm = True
