"""Mutated bytes: frames at a site's door, and damaged history files. Nothing may crash, hang or be believed."""

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any, cast

from ordercast.core.events import Envelope, Message
from ordercast.core.streams import Ack, Carry, Null, Resend
from ordercast.errors import HistoryError
from ordercast.history.disk import DiskHistory
from ordercast.history.store import Checkpoint
from ordercast.live.config import Cluster
from ordercast.live.links import Link
from ordercast.live.site import Site
from ordercast.names import ClassId
from ordercast.protocols.propagation.messages import Place, Propagate
from ordercast.protocols.registry import MACHINES
from ordercast.wire import batch, links
from ordercast.wire.codec import Encoder
from ordercast.wire.frames import NO_CLASS, frame

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "r"]}


def corpus(site: Site, peer: str) -> list[bytes]:
    """Return frames that a site may get from a peer."""
    encoder = Encoder()
    found: list[bytes] = []

    def add(message: Message, class_id: ClassId) -> None:
        found.append(b"".join(frame(*encoder.encode(message, class_id))))

    for number in range(1, 20):
        for group in GROUPS:
            class_id = site.deployment.groups.destination((group,))
            body = batch.pack(number, [b"hello", b"world"])
            envelope = Envelope(class_id, (group,), peer, 1, number, body)
            add(Carry(0, number, Propagate(envelope)), class_id)
            add(Carry(1, number, Propagate(envelope, bytes([0] * 7 + [1] + [0] * 7 + [number]))), class_id)
    for control in (Ack(0, 1), Null(1, 2), Resend(1, 1, 2), Place(1, b"12345678")):
        add(control, ClassId(1, 0))
    found += [b"".join(frame(tag, NO_CLASS, 0, 0, links.encode(value))) for tag, value in _host_frames(site)]
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


def fuzz_history(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Damage histories; each must be refused by name, or read exactly as it was written."""
    chance = random.Random(seed)
    original = folder / "original"
    history = DiskHistory(original)
    written = [chance.randbytes(chance.choice([20, 200, 3000])) for _ in range(40)]
    history.keep(Checkpoint(0, 0, b"state 0"), from_delivered=0)
    for begin in range(0, 30, 5):
        history.append(written[begin : begin + 5])
    live = folder / "live"  # as kill -9 leaves it: with the write-ahead log
    shutil.copytree(original, live)
    history.append(written[30:])
    history.close()
    done = {"files": 0, "refused": 0, "unharmed": 0}
    sources = [(original, written), (live, written[:30])]
    for number in range(count):
        source, expected = sources[number % 2]
        damaged = folder / "damaged"
        shutil.copytree(source, damaged, dirs_exist_ok=True)
        files = [
            path for path in sorted(damaged.iterdir()) if path.name.startswith("history.db") and path.stat().st_size
        ]
        victim = chance.choice([path for path in files if not path.name.endswith("-shm")])
        victim.write_bytes(_damage(chance, victim.read_bytes()))
        done["files"] += 1
        try:
            opened = DiskHistory(damaged)
            try:
                assert opened.checkpoint() == Checkpoint(0, 0, b"state 0")
                assert list(opened.records(0)) == expected, f"file {number} of seed {seed} was believed"
                done["unharmed"] += 1
            finally:
                opened.close()
        except HistoryError:
            done["refused"] += 1
        shutil.rmtree(damaged)
    return done


def _damage(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(changed[: chance.randrange(len(changed))])  # a truncated tail
    for _ in range(chance.choice([1, 1, 8])):
        at = chance.randrange(len(changed))
        if kind == 1:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            changed[at : at + 512] = chance.randbytes(len(changed[at : at + 512]))  # a torn sector
        else:
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
    return bytes(changed)
