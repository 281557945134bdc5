"""Snapshots as bytes: what goes in comes out, equal states give equal bytes, and what is no snapshot is refused."""

import pickle
import random
from collections.abc import Iterator
from hashlib import blake2b

import pytest

from ordercast import Membership
from ordercast.core.machines import Machines
from ordercast.core.snapshots import DIGEST, MARK
from ordercast.errors import HistoryError
from ordercast.names import SiteId
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World
from ordercast.wire.codec import TAGS
from tests.support.campaign import KINDS, Kind


def busy(kind: Kind, seed: int = 1) -> World:
    """Stop a run in the middle: much is under way, parked, held back and not acknowledged."""
    protocol, causal = kind
    alone = protocol.endswith("-hybrid")
    family = Membership.of({"A": "abc", "B": "bcd", "C": "ef", "D": "fa"})
    case = Scenario(family, protocol.removesuffix("-hybrid"), causal=causal, groups_alone=alone, senders=6, seed=seed)
    deployment = deploy(case)
    world = World(deployment, seed, Network(jitter=4.0, loss=0.2))
    several = [("A",), ("B",), ("C",), ("D",)] + ([] if alone else [("A", "B")])
    for index in range(80):
        source = world.chance.choice(deployment.groups.sources)
        world.multicast(index / 4, source, world.chance.choice(several), b"%d" % index)
    world.run(15.0)
    return world


def states(world: World) -> Iterator[tuple[SiteId, bytes]]:
    return ((site, world.deployment.encode(machines.snapshot())) for site, machines in world.machines.items())


def read(deployment: Deployment, site: SiteId, data: bytes) -> Machines:
    machines = deployment.machines(site)
    machines.restore(deployment.decode(data))
    return machines


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0] + ("-causal" if kind[1] else ""))
def test_a_restored_machine_has_the_same_snapshot(kind: Kind) -> None:
    world = busy(kind)
    sizes = []
    for site, data in states(world):
        assert world.deployment.encode(read(world.deployment, site, data).snapshot()) == data
        sizes.append(len(data))
    assert max(sizes) > 500


def signed(payload: bytes) -> bytes:
    """Return a payload as whoever knows the format would write it."""
    return MARK + blake2b(payload, digest_size=DIGEST).digest() + payload


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_damaged_and_forged_bytes_are_refused_or_make_no_difference(protocol: str) -> None:
    """3,000 mutations of each: damaged bytes never pass, and forged ones raise HistoryError or are a valid state."""
    world, chance = busy((protocol, False)), random.Random(1)
    corpus = list(states(world))
    head = len(MARK) + DIGEST
    for _ in range(3000):
        site, data = chance.choice(corpus)
        changed = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(changed))
            changed[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
        if bytes(changed) == data:
            continue
        with pytest.raises(HistoryError):
            world.deployment.decode(bytes(changed))
        try:
            read(world.deployment, site, signed(bytes(changed[head:])))
        except HistoryError:
            continue


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("code of a snapshot was run",))


def test_nothing_in_a_snapshot_is_ever_run() -> None:
    """A pickle that calls something when it is read: it is only bytes."""
    deployment = deploy(Scenario(Membership.of({"A": "ab"})))
    trap = pickle.dumps(_Trap())
    for data in (
        trap,
        signed(trap),
        MARK + trap,
        b"",
        MARK,
        signed(b""),
        signed(b"\xdd" * 1000),
        signed(b"\x91" * 99999),
    ):
        with pytest.raises(HistoryError):
            deployment.decode(data)


def test_a_snapshot_of_another_site_protocol_or_configuration_is_refused() -> None:
    family = Membership.of({"A": "abc", "B": "de"})
    given = {protocol: deploy(Scenario(family, protocol, senders=5, seed=3)) for protocol in MACHINES}
    data = {}
    for protocol, deployment in given.items():
        world = World(deployment)
        for groups in (("A",), ("B",)):
            world.multicast(0.0, deployment.groups.sources[0], groups)
        world.run(3.0)
        data[protocol] = deployment.encode(world.machines["a"].snapshot())
        with pytest.raises(HistoryError, match="a snapshot of a, not of b"):
            deployment.machines("b").restore(deployment.decode(data[protocol]))
        smaller = deploy(Scenario(Membership.of({"A": "abc"}), protocol, senders=5, seed=3))
        snapshot = smaller.decode(data[protocol])
        if len(snapshot.machines) > 1:
            with pytest.raises(HistoryError, match=r"class 1\.1, which this configuration has not"):
                smaller.machines("a").restore(snapshot)
    with pytest.raises(HistoryError):
        given["two-phase"].decode(data["propagation"])
    for tree, arrow in (("combining", "arrow"), ("combining-counting", "arrow-counting")):
        with pytest.raises(HistoryError, match="a snapshot of another"):
            read(given[tree], "a", data[arrow])


def test_the_format_has_a_version() -> None:
    deployment = deploy(Scenario(Membership.of({"A": "ab"})))
    data = deployment.encode(deployment.machines("a").snapshot())

    assert data.startswith(b"ordercast snapshot 1\n")
    with pytest.raises(HistoryError, match="not a snapshot of this version"):
        deployment.decode(data.replace(b"snapshot 1", b"snapshot 0"))


def test_one_tag_table() -> None:
    """A message carries its tag in snapshots too; the table of the wire is the only one."""
    for tag, kind in TAGS.items():
        assert kind.__struct_config__.tag == tag
    assert len(set(TAGS.values())) == len(TAGS)
