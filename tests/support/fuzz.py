"""Mutated bytes: frames at a site's door. Nothing may crash, hang or be believed."""

import asyncio
import random
from pathlib import Path
from typing import Any, cast

from ordercast.core.edges import Ack, Carry, Null, Resend
from ordercast.core.events import Envelope, Message
from ordercast.live.config import Cluster
from ordercast.live.links import Link
from ordercast.live.session import Session
from ordercast.live.site import Site
from ordercast.names import ClassId
from ordercast.protocols.propagation.messages import Place, Propagate
from ordercast.protocols.registry import MACHINES
from ordercast.wire import batch, clients, peers
from ordercast.wire.codec import Encoder
from ordercast.wire.frames import NO_CLASS, frame
from ordercast.wire.tags import Tag

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "r"]}


Said = tuple[int, int, int, bytes, ClassId]
"""Tag, stream, number, payload, class."""


def corpus(site: Site, peer: str) -> list[Said]:
    """Return what a site may hear from a peer."""
    encoder = Encoder()
    found: list[Said] = []

    def add(message: Message, class_id: ClassId) -> None:
        found.append((*encoder.encode(message), class_id))

    for number in range(1, 20):
        for group in GROUPS:
            class_id = site.deployment.groups.destination((group,))
            body = batch.pack(number, [b"hello", b"world"])
            envelope = Envelope(class_id, (group,), peer, 1, number, body)
            add(Carry(0, number, Propagate(envelope)), class_id)
            add(Carry(1, number, Propagate(envelope, bytes([0] * 7 + [1] + [0] * 7 + [number]))), class_id)
    for control in (Ack(0, 1), Null(1, 2), Resend(1, 1, 2), Place(1, b"12345678")):
        add(control, ClassId(1, 0))
    found += [(tag, 0, 0, peers.encode(value), NO_CLASS) for tag, value in _host_frames(site)]
    return found


def _host_frames(site: Site) -> list[tuple[int, Any]]:
    return [
        (Tag.HELLO, site.epochs.hello("q")),
        (Tag.REFUSE, peers.Refuse("no")),
        (Tag.HEARTBEAT, peers.Refuse("")),
        (Tag.LOGIN, clients.Login(clients.VERSION)),
        (Tag.POST, clients.Post(1, ("a",), "none", [b"x"])),
    ]


def mutate(chance: random.Random, data: bytes) -> bytes:
    """Change, insert, delete or repeat a few bytes."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(6):
            case 0 | 1 if changed:
                changed[at] = chance.randrange(256)
            case 2 if changed:
                changed[at] ^= 1 << chance.randrange(8)
            case 3:
                changed[at:at] = chance.randbytes(chance.randint(1, 8))
            case 4:
                del changed[at : at + chance.randint(1, 8)]
            case 5:
                changed[at:at] = changed[at : at + 16]
    return bytes(changed)


def mutated(chance: random.Random, said: Said) -> bytes:
    """Return a frame that was changed: on its way, which its checksums tell, or by who sent it, which they do not."""
    if chance.random() < 0.3:
        return mutate(chance, b"".join(frame(*said)))
    tag, stream, number, payload = said
    match chance.randrange(8):
        case 0:
            tag = chance.choice([chance.randrange(256), *Tag])
        case 1:
            stream = chance.choice([chance.randrange(8), 2**32 - 1])
        case 2:
            number = chance.choice([chance.randrange(8), 2**63, 2**64 - 1])
        case _:
            payload = mutate(chance, payload)
    return b"".join(frame(tag, stream, number, payload))


class _NoSocket:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.closing = False

    def writelines(self, data: Any) -> None:
        """Nowhere."""

    def pause_reading(self) -> None:
        """Nothing is read."""

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        """No limits."""

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closing

    def get_extra_info(self, name: str) -> None:
        """No TLS."""

    def close(self) -> None:
        """Close."""
        self.closing = True

    abort = close


async def fuzz_frames(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Feed mutated frames to sites of every protocol; anything but a closed link or a taken message is an error."""
    chance = random.Random(seed)
    done = {"frames": 0, "refused": 0, "delivered": 0}
    while done["frames"] < count:
        protocol = chance.choice(["propagation", "propagation", *MACHINES])
        addresses = {name: f"127.0.0.1:{number}" for number, name in enumerate("pqr", start=1)}
        config = Cluster(sites=addresses, groups=GROUPS, durable=False, folder=str(folder), protocol=protocol)
        site = Site(config, "q")
        site.loop = asyncio.get_running_loop()
        site._open_history()
        of_peer = {peer: corpus(site, peer) for peer in "pr"}
        inbox = site.inbox()
        position = 0
        for _ in range(min(2000, count - done["frames"])):
            link = Link(site, None)
            link.connection_made(cast(asyncio.BaseTransport, _NoSocket()))
            peer = chance.choice("pr")
            frames = of_peer[peer]
            if chance.random() < 0.9:
                link.peer = peer
                site.links[peer] = link
            data = b"".join(b"".join(frame(*chance.choice(frames))) for _ in range(chance.randint(0, 2)))
            link.data_received(data + mutated(chance, chance.choice(frames)))
            done["frames"] += 1
            done["refused"] += link._transport is not None and link._transport.is_closing()
        while inbox._lots:
            lot = inbox._lots.popleft()
            assert lot.position == position and set(lot.groups) & site.groups, lot
            position += batch.count(lot.body)
            done["delivered"] += 1
        if site._ticking is not None:
            site._ticking.cancel()
    return done


def said_by_clients() -> list[Said]:
    """Return what a client may say once it has logged in."""
    said: list[tuple[int, Any]] = [
        (Tag.LOGIN, clients.Login(clients.VERSION, "secret")),
        (Tag.JOIN, clients.Join(1, ["a"], None)),
        (Tag.JOIN, clients.Join(2, None, -1, "drop", "name")),
        (Tag.LEAVE, clients.Leave(3)),
        (Tag.TAKEN, clients.Taken(100)),
        (Tag.POST, clients.Post(4, ("a",), "none", [b"x", b"y"])),
        (Tag.POST, clients.Post(5, ("a", "b"), "safe", [b""])),
        (Tag.ASK, clients.Ask(6, "status")),
        (Tag.ASK, clients.Ask(7, "explain", "q:1")),
    ]
    return [(tag, 0, 0, clients.encode(value), NO_CLASS) for tag, value in said]


async def fuzz_clients(config: Cluster, count: int, seed: int = 0) -> dict[str, int]:
    """Let clients say mutated frames to the port of a running site; it closes them, or answers, and goes on."""
    chance, faults = random.Random(seed), list[dict[str, Any]]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    done = {"frames": 0, "refused": 0}
    said = said_by_clients()
    async with Site(config, "q") as site:
        assert site.port is not None
        while done["frames"] < count:
            session = Session(site.port)
            socket = _NoSocket()
            session.connection_made(cast(asyncio.BaseTransport, socket))
            if chance.random() < 0.9:
                session.data_received(b"".join(frame(*said[0])))
            for _ in range(chance.randint(1, 6)):
                session.data_received(mutated(chance, chance.choice(said)))
                done["frames"] += 1
            if chance.random() < 0.2:
                await asyncio.sleep(0)
            done["refused"] += socket.closing
            session.connection_lost(None)
        await asyncio.sleep(0)
        assert not site.port.sessions and site.port.large.used == 0 and site.port._granted == 0
        assert not site.readers and site.failed is None
    assert faults == []
    return done
