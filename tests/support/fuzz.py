"""Mutated bytes: frames at a site's door. Nothing may crash, hang or be believed."""

import asyncio
import random
from pathlib import Path
from typing import Any, cast

from ordercast.core.edges import Ack, Carry, Null, Resend
from ordercast.core.events import Envelope, Message
from ordercast.live.config import Cluster
from ordercast.live.links import Link
from ordercast.live.site import Site
from ordercast.protocols.propagation import Place, Propagate
from ordercast.protocols.registry import MACHINES
from ordercast.wire import batch, links
from ordercast.wire.codec import Encoder
from ordercast.wire.frames import frame

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "r"]}


def corpus(site: Site, peer: str) -> list[bytes]:
    """Return frames that a site may get from a peer."""
    encoder = Encoder()
    found: list[bytes] = []

    def add(message: Message) -> None:
        found.append(b"".join(frame(*encoder.encode(message))))

    for number in range(1, 20):
        for group in GROUPS:
            order_class = site.deployment.groups.class_of(group)
            body = batch.pack(number, [b"hello", b"world"])
            envelope = Envelope(order_class, 1, (group,), peer, 1, number, body)
            add(Carry(2 * order_class, number, Propagate(envelope)))
            add(Carry(2 * order_class + 1, number, Propagate(envelope, bytes([0] * 7 + [1] + [0] * 7 + [number]))))
    for control in (Ack(0, 1), Null(1, 2), Resend(1, 1, 2), Place(1, b"12345678")):
        add(control)
    found += [b"".join(frame(tag, 0, 0, links.encode(value))) for tag, value in _host_frames(site)]
    return found


def _host_frames(site: Site) -> list[tuple[int, Any]]:
    return [
        (links.HELLO, site.epochs.hello("q")),
        (links.REFUSE, links.Refuse("no")),
        (links.HEARTBEAT, links.Refuse("")),
        (links.LOGIN, links.Login(links.VERSION)),
        (links.POST, links.Post(1, ("a",), "none", [b"x"])),
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


class _NoSocket:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.closing = False

    def writelines(self, data: Any) -> None:
        """Nowhere."""

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
            data = b"".join(chance.choice(frames) for _ in range(chance.randint(0, 2)))
            link.data_received(mutate(chance, data + chance.choice(frames)))
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
