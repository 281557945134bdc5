"""Planted bugs in the node: each is a wrong line or two, and each must be caught by the campaign within 200 seeds."""

import importlib
import os

import pytest

from tests.support.campaign import Kind
from tests.support.node_campaign import ALL_MIXES, case
from tests.support.planted import check_planted, planted

P, O, I, N, R = "node.pipeline", "node.outbox", "node.intake", "node.node", "node.recovery"  # noqa: E741
D, A, W, C, L = "node.deliveries", "node.readers", "node.peers", "node.pace", "node.links"
PROPAGATION, SEQUENCER, ARROW, TWO_PHASE, CAUSAL = (
    ("propagation", False),
    ("sequencer", False),
    ("arrow", False),
    ("two-phase", False),
    ("propagation", True),
)

# name, module, replacements, machine
MUTANTS: list[tuple[str, str, list[tuple[str, str]], Kind]] = [
    ("effects are done before their record", P, [("            else:\n                self._behind.append(effect)", "            else:\n                self._do(effect)")], PROPAGATION),
    ("a commit is acknowledged early", P, [("self._writing = (len(records), behind, positions, frozen)", "self._writing = (len(records), [], positions, frozen)\n                [self._do(work) for work in behind]")], PROPAGATION),
    ("what was written is written again", P, [("            records, self._records = self._records, []", "            records = list(self._records)")], PROPAGATION),
    ("records are miscounted after a replay", P, [("        self.written += 1\n", "        self.written += 2\n")], PROPAGATION),
    ("index entries are lost", P, [("positions, self.positions = self.positions, []\n                self._writing", "positions, self.positions = self.positions[:-1], []\n                self._writing")], PROPAGATION),
    ("a receipt before its commit", O, [("host.after_commit(Resolve(waiter.token, receipts))", "self.tell(Resolve(waiter.token, receipts))")], PROPAGATION),
    ("a flush before its commit", N, [("self.after_commit(io.Resolve(given.token))", "self.tell(io.Resolve(given.token))")], ARROW),
    ("a parked message is dropped", I, [("        self.parked.setdefault(class_id, deque()).append((peer, message))\n", "        if self.waited % 5 == 4:\n            self.waited += 1\n            return True\n        self.parked.setdefault(class_id, deque()).append((peer, message))\n")], PROPAGATION),
    ("one parked message is let in", I, [("while queue and not self.readers.holds_up(class_id)", "if queue and not self.readers.holds_up(class_id)")], PROPAGATION),
    ("parked messages are let in last first", I, [("queue.popleft()", "queue.pop()")], PROPAGATION),
    ("a reader that reads lets nobody in", "node.reading", [("        if self.node.intake.parked:\n            self.node.intake.let_in()", "        pass")], PROPAGATION),
    ("a reader that leaves lets nobody in", "node.reading", [("        self.node.readers.leave(given.reader)\n        self.node.intake.let_in()", "        self.node.readers.leave(given.reader)")], PROPAGATION),
    ("a checkpoint forgets how many messages were sent", R, [("messages=frozen.messages", "messages=0")], PROPAGATION),
    ("a checkpoint forgets bodies that are held back", R, [("bodies=[(identity, record) for identity, record in done.bodies.items() if record <= frozen.records]", "bodies=[]")], CAUSAL),
    ("a checkpoint forgets records that are held back", R, [("needed = frozenset(record for record in node.deliveries.bodies.values() if record <= frozen.records)", "needed = frozenset()")], ("timestamp", False)),
    ("a checkpoint forgets positions", R, [("return Checkpoint(frozen.records, done.count,", "return Checkpoint(frozen.records, 0,")], PROPAGATION),
    ("a checkpoint forgets whom the site has met", R, [("met=node.peers.met", "met={}")], ARROW),
    ("a checkpoint forgets stamps", R, [("stamps=done.stamps", "stamps={}")], PROPAGATION),
    ("a checkpoint forgets the last of each source", R, [("last_delivered=done.last", "last_delivered={}")], PROPAGATION),
    ("a checkpoint claims a record too many", R, [("return Frozen(node.pipeline.next_record - 1,", "return Frozen(node.pipeline.next_record,")], PROPAGATION),
    ("a checkpoint before its index", R, [("        return node.pipeline.write_positions()  # no reader", "        return False  # no reader")], PROPAGATION),
    ("messages are renumbered after a restart", R, [("        node.outbox.messages = first + many - 1\n", "")], PROPAGATION),
    ("what is replayed is not delivered", R, [("        node.deliver(effect, again=True)", "        pass")], PROPAGATION),
    ("meetings are not replayed", R, [("        met[stored.peer] = Life(stored.incarnation, stored.records, start, stored.boot)\n", "")], TWO_PHASE),
    ("what is delivered again is not in the index", N, [("if not again or position.position >= self.history.next_position:", "if not again:")], PROPAGATION),
    ("a window is not returned", O, [("            self.unsafe_bytes.pop(sent.groups, None)", "            pass")], PROPAGATION),
    ("a window is returned twice", O, [("left = self.unsafe_bytes.get(sent.groups, 0) - sent.size", "left = self.unsafe_bytes.get(sent.groups, 0) - 2 * sent.size")], PROPAGATION),
    ("posts with room again are not sent", O, [("                self.tell(answer)\n        self.let_in()", "                self.tell(answer)")], PROPAGATION),
    ("a window without receipts is not counted again", N, [("self.outbox.count_under_way(self.machines.under_way)", "pass")], SEQUENCER),
    ("a post overtakes one that waits", O, [("return self.crowded(groups) or any(self._before(post.groups, groups) for post, _ in self.waiting)", "return self.crowded(groups)")], PROPAGATION),
    ("a batch overtakes an open one", O, [("            if self._before(earlier.groups, groups):\n                self._send(earlier)", "            pass")], PROPAGATION),
    ("a post overtakes open batches", O, [("        for earlier in list(self._open.values()):\n            self._send(earlier)\n        own", "        own")], PROPAGATION),
    ("a batch mixes destinations", O, [("        found = self._open.get(groups)\n        if type(body)", "        found = next(iter(self._open.values()), None)\n        if type(body)")], PROPAGATION),
    ("a receipt for the first of a batch only", O, [("[self._receipt(waiter.at + index) for index in range(waiter.many)]", "[self._receipt(waiter.at)]")], PROPAGATION),
    ("all of a batch have one place", O, [('self.stamp + index.to_bytes(4, "big")', "self.stamp + bytes(4)")], PROPAGATION),
    ("safe as soon as it is ordered", O, [('sent.answers("ordered"):', 'sent.answers("safe"):')], PROPAGATION),
    ("who waits for safe messages is not told", O, [('for level in ("ordered", "safe"):', 'for level in ("ordered",):')], PROPAGATION),
    ("open batches are not sent in time", N, [("if self.outbox.send_at is not None and self.outbox.send_at <= now:", "if False:")], PROPAGATION),
    ("who waits is not told when a site stops", N, [('            self.outbox.close(LostError("the site was stopped"))\n', "")], PROPAGATION),
    ("who waits is not told when the cluster begins anew", L, [("        node.outbox.lose(lost)\n", "")], PROPAGATION),
    ("who waits is not told when the disk is full", N, [("        self.outbox.close(error)\n", "")], PROPAGATION),
    ("meetings are not written", L, [("elif news and node.settings.durable:", "elif False:")], TWO_PHASE),
    ("incarnations are not checked", W, [("if known.incarnation != hello.incarnation:", "if False:")], ARROW),
    ("a lost site sends on", N, [("        if self.peers.lost is not None:\n", "        if False:\n")], ARROW),
    ("links that come up are not stepped", L, [("        node.step(LinkUp(given.peer))\n", "")], PROPAGATION),
    ("who is needed is not called", N, [("            self.tell(io.Dial(effect.to))\n", "")], ARROW),
    ("a tick is never asked for", C, [("        if self.tick_at is None:\n            self.tick_at = now + REST_S", "        pass")], PROPAGATION),
    ("ticks never end", C, [("None if idle else", "")], PROPAGATION),
    ("positions are skipped", D, [("        self.count += many\n", "        self.count += many + (self.count % 7 == 6)\n")], PROPAGATION),
    ("a reader misses the hand-over from past to live", A, [("            for lot in self.recent:\n                self._put(reader, lot, lot.count)\n", "")], PROPAGATION),
    ("a reader in the past gets the present", A, [("            if reader.past:\n                continue\n", "")], PROPAGATION),
    ("a reader in the past is forgotten", A, [("if reader.past and reader.bytes <= self.limit // 2:", "if False:")], PROPAGATION),
    ("a reader begins one too late", A, [("else end if after is None else after + 1", "else end if after is None else min(after + 2, end)")], PROPAGATION),
    ("a gap is not told", A, [("kept.append(said_lot(last, (), Gap(first, last)))", "pass")], PROPAGATION),
    ("a gap is told too short", A, [("said_lot(last, (), Gap(first, last))", "said_lot(last, (), Gap(first, max(first, last - 1)))")], PROPAGATION),
    ("a reader is dropped and not told", A, [('self.end(reader, DroppedError(f"reader {reader.name} was too far behind", reader.next - 1))', "self.all.remove(reader)")], PROPAGATION),
    ("a dropped reader is told a wrong position", A, [("reader.next - 1))", "reader.next))")], PROPAGATION),
    ("the index forgets what is recent too early", A, [("        for _ in range(many):\n            self.recent.popleft()", "        self.recent.clear()")], PROPAGATION),
    ("readers of some groups get everything", A, [("if self.wants(lot.groups):", "if True:")], PROPAGATION),
]  # fmt: skip
CHOSEN = MUTANTS if "ORDERCAST_CAMPAIGN" in os.environ else MUTANTS[::7]


def caught(mutant: tuple[str, str, list[tuple[str, str]], Kind], seeds: int = 200) -> int | None:
    """Return the first seed that shows a planted bug; None when none does."""
    _, module, replacements, kind = mutant
    with planted(module, *replacements):
        run = importlib.import_module("ordercast.sim.faults").run
        for seed in range(seeds):
            if not run(case(kind, ALL_MIXES[seed % len(ALL_MIXES)], seed)).ok:
                return seed
    return None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant[0])
def test_planted_bugs_are_caught(mutant: tuple[str, str, list[tuple[str, str]], Kind]) -> None:
    """A sample; all of them in `make sim`."""
    assert caught(mutant) is not None, "survived 200 seeds"


def test_every_planted_bug_is_one() -> None:
    """Each replaces a text that occurs once in the code of today."""
    for _, module, replacements, _ in MUTANTS:
        check_planted(module, *replacements)

    assert len(MUTANTS) >= 20
