"""Nodes whose groups change: 60 seeds here, 2,000 in `make sim`; and what the campaign must see."""

import importlib
import os

import pytest

from ordercast.core.events import Envelope
from ordercast.core.streams import Carry
from ordercast.epochs.change import first_setup, plan_change, wanted
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import Join
from ordercast.epochs.setup import GroupSetup
from ordercast.errors import InputError, PeerError
from ordercast.history.memory import NoHistory
from ordercast.history.store import Identity
from ordercast.node.changing import ChangingChecker, ChangingNode
from ordercast.node.settings import Settings
from ordercast.protocols.swap.multicast import Ordered
from ordercast.sim.changing_nodes import run
from tests.support.changing_campaign import FAULTS, case
from tests.support.epoch_campaign import SITES
from tests.support.planted import check_planted, planted

FOUND = (41, 43, 258, 346, 763, 787, 1034, 1317, 20770, 20789, 20808, 40455, 41768, 42102, 50780, 51357, 53741, 100135)
"""Seeds that have shown a bug; the last ones errata 126 (42102), 127 (40455), 128 (41768) and 129 (51357)."""
ROLLED_BACK = (296, 1800)
"""Seeds in which a site is started again between a delivery and its end."""
C, R, F = "node.changing", "node", "founding"
MUTANTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("what was asked for before a restart is not asked again", C, [("        self.pipeline.put(self.participant.again())\n", "        self.participant.again()\n")]),
    ("what was not told before a restart is not told", C, [("        for lot, many, record in untold:\n            self._index(lot, many, record)\n", "")]),
    ("what the site says itself has no record", C, [("            self.pipeline.log(records.encode(records.Told(lot.groups, lot.source, lot.body)))\n", "")]),
    ("what the site says itself has no position", C, [("        self.deliveries.count += 1\n        self._put(lot, 1, None)", "        self._put(lot, 1, None)")]),
    ("one too few is rolled back", C, [("positions = tuple(position for first, many, *_ in undone for", "positions = tuple(position for first, many, *_ in undone[1:] for")]),
    ("what may be undone is forgotten in a checkpoint", R, [("undoable=list(node.undoable)", "undoable=[]")]),
    ("what is delivered cannot be undone", C, [("        self.undoable.append((done.lot.position, done.many, done.order, envelope.groups, origin))\n", "")]),
    ("who is away is said to have left", C, [("effect.epoch, effect.away)", "effect.epoch, ())")]),
    ("a batch to a group that is gone stops the site", C, [("            return LostError(str(error))\n        return None", "            pass\n        return None")]),
    ("who waits for what is dropped is not told", R, [("            self.safe(number)\n            self._fail(waiting, error)", "            self.safe(number)")]),
    ("what is dropped is not said", C, [("        self.tell(io.Dropped(effect.groups, batch.unpack(effect.body), effect.reason, first))\n", "")]),
    ("a lost disk is refused", R, [("        if self.settings.changes and hello.incarnation > known.incarnation:", "        if False:")]),
    ("a site does not know its new groups", C, [("        self._number, self.causal = setup.number, setup.causal\n", "        self._number, self.causal = setup.number, setup.causal\n        if setup.number > 1:\n            return\n")]),
    ("index entries are written before what they speak of", R, [("        records, self._records = self._records, []\n        behind, self._behind = self._behind, []\n        self._writing = (len(records), behind, positions, None)\n        self._tell(Write(records, positions))\n        return True", "        self._writing = (0, [], positions, None)\n        self._tell(Write([], positions))\n        return True")]),
    ("what is posted again is delivered again", C, [("        if origin is not None and not self.deliveries.sessions.is_new(envelope.groups, origin):", "        if False:")]),
    ("who joins does not know what was posted", C, [("wrap(state, self.deliveries.sessions.of_group(group))", "wrap(state, {})")]),
    ("a checkpoint forgets what was posted", R, [("sessions=done.sessions.snapshot()", "sessions=[]")]),
    ("who has lost its disk begins again", F, [("if setup is None or setup.founders.get(site.me) != site.source.incarnation:", "if setup is None:")]),
    ("a cluster begins without everybody", F, [("ready.keys() == first.sites.keys()", "len(ready) > 1")]),
    ("who began is not written down", F, [("        site.durable()\n        self.state = FoundingState()\n", "        self.state = FoundingState()\n")]),
    ("who moves reads the last message again", R, [("self.found = lot.position + place.number - lot.first + 1", "self.found = lot.position + place.number - lot.first")]),
    ("who moves loses the rest of a batch", R, [("self.found = lot.position + place.number - lot.first + 1", "self.found = lot.position + many")]),
    ("who moves begins at the end", R, [("begin = first if isinstance(after, Place)", "begin = end if isinstance(after, Place)")]),
    ("who moves is content with any place", R, [("        if (lot.stamp, lot.source) != (place.stamp, place.source) or not 0 <= place.number - lot.first < many:\n            raise NotHereError\n", "")]),
    ("who moves misses what its site got through another group", R, [("        if self._enters(lot) and self.found is not None:\n            raise NotHereError\n", "")]),
    ("nobody is trusted again", "node.detector", [("                if peer in suspected:\n                    yield Trusted(peer)\n", "")]),
]  # fmt: skip
CHOSEN = MUTANTS if "ORDERCAST_CAMPAIGN" in os.environ else MUTANTS[4::12]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_changes_failures_and_disks(first: int) -> None:
    """Issue 13: in worlds of nodes, for all protocols; everything is done within 30 s after the last fault."""
    for seed in range(first, first + 10):
        found, _ = run(case(seed))

        assert found == [], (seed, found[:3])


@pytest.mark.slow
def test_readers_move_and_miss_nothing() -> None:
    """Each reader that moves has at the end what the members of its group have, or stands where nobody can go on."""
    movers = [mover for seed in range(40) for mover in run(case(seed))[1].movers]

    assert sum(mover.moves for mover in movers) > 50
    assert sum(mover.reads for mover in movers) > 0.8 * len(movers)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_broken_once(seed: int) -> None:
    assert run(case(seed))[0] == []


def test_every_kind_of_fault_is_in_many_seeds() -> None:
    cases = [case(seed) for seed in range(300)]

    assert [kind for kind in FAULTS if sum(any(f.kind == kind for f in c.faults) for c in cases) < 60] == []


def caught(mutant: tuple[str, str, list[tuple[str, str]]], seeds: int = 200) -> int | None:
    """Return the first seed that shows a planted bug; None when none does."""
    _, module, replacements = mutant
    with planted(module, *replacements):
        world = importlib.import_module("ordercast.sim.changing_nodes")
        campaign = importlib.import_module("tests.support.changing_campaign")
        seed: int
        for seed in [*range(seeds), *ROLLED_BACK]:
            if world.run(campaign.case(seed))[0]:
                return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant[0])
def test_planted_bugs_are_caught(mutant: tuple[str, str, list[tuple[str, str]]]) -> None:
    """A sample; all of them in `make sim`."""
    assert caught(mutant) is not None, "survived 200 seeds"


def test_every_planted_bug_is_one() -> None:
    """Each replaces a text that occurs once in the code of today."""
    for _, module, replacements in MUTANTS:
        check_planted(module, *replacements)

    assert len(MUTANTS) >= 15


def test_groups_that_change_are_durable() -> None:
    """A council whose members forget their promises decides twice: it is refused by name."""
    settings = Settings("test", frozenset(SITES), False, "changes", b"{}", changes=True)
    setup = case(0).setup
    with pytest.raises(InputError, match="groups that change take durable = true"):
        ChangingNode("a", settings, setup, NoHistory(Identity("test", "a", 1)), lambda: 0.0)


def test_errata_116_a_stub_for_who_has_just_joined() -> None:
    """In the class that closes this site is no member of the group: a stub has no body. In the next one it must."""
    old = first_setup("abz", {"x": GroupSetup(("a", "b"), "arrow"), "y": GroupSetup(("a", "b", "z"), "arrow")})
    wish = wanted(old, [("a", 1, Join("x", "z"))], frozenset())
    assert wish is not None
    new = plan_change(old, wish).setup
    before, now = old.class_of["x"], new.class_of["x"]
    participant = Participant("z", old)
    participant.setup, participant.earlier = new, {before: old.classes[before]}
    checker = ChangingChecker(participant, lambda _site, _life: None)
    stub = {c: Carry(1, 1, Ordered(None, Envelope(c, ("x",), "a", 1, 1, b""))) for c in (before, now)}

    checker.check("a", before, stub[before])
    with pytest.raises(PeerError, match="an envelope without messages"):
        checker.check("a", now, stub[now])
