"""What a site becomes by a step: every local state, message and content of a link has a number, given when it is met.

A machine's step depends on its own state and the event alone, so it is computed once and looked up afterwards. Equal
machines have equal snapshots, byte by byte.
"""

from typing import Any, NamedTuple

from ordercast.core.effects import Append, Deliver, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.names import ClassId, GroupId
from ordercast.protocols.registry import Deployment

MULTICAST, CARRY, LOSE, DOUBLE, RECONNECT, CRASH, TICK = range(7)
"""What may happen."""
UP, DOWN = 7, 8
"""What a site is told of a link."""

Delivery = tuple[str, int, bytes, bytes]
"""Message, order, stamp, body."""


class Local(NamedTuple):
    """What one site has become."""

    site: int
    machine: int  # its number, see `Steps.freeze`
    log: tuple[Delivery, ...]
    after: tuple[int, ...]  # for each multicast of this site: deliveries here before it was sent
    inputs: tuple[Event, ...]  # the durable log, kept only while a crash may happen
    places: tuple[tuple[int, bytes], ...] = ()  # what this site heard of its messages


Sends = tuple[tuple[int, int], ...]
"""Links and messages, by their numbers."""
Code = tuple[int, ...]
"""What a site is fed, in numbers."""
Outcome = tuple[int, Sends, int, tuple[int, ...]]
"""What a site becomes, what it sends, how many effects there were, and which of its messages it calls safe."""


class Steps:
    """All local states, messages and contents met so far, and the steps between them."""

    def __init__(self, deployment: Deployment, orders: list[list[tuple[GroupId, ...]]]) -> None:
        self.deployment, self.orders = deployment, orders
        self.sites = deployment.sites
        self.count = len(self.sites)
        self.number = {site: index for index, site in enumerate(self.sites)}
        self.local: list[Local] = []
        self.message: list[tuple[Message, ClassId]] = []
        self.content: list[tuple[int, ...]] = [()]
        self.idle: list[bool] = []  # by the number of the machine
        self.steps: list[dict[Any, Outcome]] = []  # by the number of the local state
        self._machines: dict[bytes, int] = {}  # a snapshot, as bytes -> its number
        self._frozen: list[bytes] = []
        self._locals: dict[Local, int] = {}
        self._messages: dict[tuple[Message, ClassId], int] = {}
        self._contents: dict[tuple[int, ...], int] = {(): 0}

    def step(
        self, local: Local, code: tuple[int, ...], durable: bool, upto: int
    ) -> tuple[int, Sends, int, tuple[int, ...]]:
        """Compute a step that was never met: the site after it, what goes on which link, how many effects it has."""
        event = self._event(local, code)
        machine = self.thaw(local)
        log, inputs, after, sends = list(local.log), list(local.inputs), local.after, []
        places, safe = list(local.places), []
        effects = machine.step(event)
        if isinstance(event, Multicast) and (not upto or Append(event) in effects[:upto]):
            after = (*after, len(log))
        for effect in effects[: upto or None]:
            match effect:
                case Send(to, message, class_id):
                    number = self.message_number((message, class_id))
                    sends.append((self.count * (local.site + 1) + self.number[to], number))
                case Deliver():
                    log.append(self.delivery(effect))
                case Append(input_):
                    if durable:
                        inputs.append(input_)
                case Refuse():
                    raise AssertionError(f"{machine.me} refuses an honest peer: {effect}")
                case Placed(number, stamp):
                    places.append((number, stamp))
                case Safe(number):
                    safe.append(number)
                case _:
                    raise TypeError(f"no such effect: {effect!r}")
        frozen = local.machine if upto else self.freeze(machine)
        kept = tuple(inputs) if durable else ()
        became = Local(local.site, frozen, tuple(log), after, kept, tuple(places))
        return self.local_number(became), tuple(sends), len(effects), tuple(safe)

    def _event(self, local: Local, code: tuple[int, ...]) -> Event:
        if code[0] == MULTICAST:
            groups, body = self.orders[local.site][code[1]], b"%d" % (code[1] + 1)
            return Multicast(groups, body, self.deployment.receipts)
        if code[0] == TICK:
            return Tick(float(code[1]))
        peer = self.sites[code[1]]
        if code[0] in (UP, DOWN):
            return LinkUp(peer) if code[0] == UP else LinkDown(peer)
        message, class_id = self.message[code[2]]
        return Received(peer, message, class_id)

    def delivery(self, deliver: Deliver) -> Delivery:
        """Return a delivery as logs keep it."""
        envelope = deliver.envelope
        return envelope.msg_id, self.deployment.groups.order_of(envelope.groups), deliver.stamp, envelope.body

    def local_number(self, local: Local) -> int:
        """Return the number of what a site has become."""
        number = self._locals.get(local)
        if number is None:
            number = self._locals[local] = len(self.local)
            self.local.append(local)
            self.steps.append({})
        return number

    def message_number(self, message: tuple[Message, ClassId]) -> int:
        """Return the number of a message in a class."""
        if message not in self._messages:
            self._messages[message] = len(self.message)
            self.message.append(message)
        return self._messages[message]

    def content_number(self, content: tuple[int, ...]) -> int:
        """Return the number of what is on a link."""
        number = self._contents.get(content)
        if number is None:
            number = self._contents[content] = len(self.content)
            self.content.append(content)
        return number

    def freeze(self, machines: Machines) -> int:
        """Return the number of this local state: equal machines of one site have one number."""
        form = self.deployment.encode(machines.snapshot())
        number = self._machines.get(form)
        if number is None:
            number = self._machines[form] = len(self._frozen)
            self._frozen.append(form)
            self.idle.append(machines.idle)
        return number

    def thaw(self, local: Local) -> Machines:
        """Return a site's machines as they are in a local state."""
        machines = self.deployment.machines(self.sites[local.site])
        machines.restore(self.deployment.decode(self._frozen[local.machine]))
        return machines
