"""Planted bugs: each is one wrong line in a machine or a planner, and each must be caught within 200 seeds.

A mutant is a replacement of source text, compiled into a module of its own, so the code under test stays untouched.
"""

import sys

import pytest

from ordercast import ClassRule, Level, errors
from ordercast.planning.classes import class_labels
from ordercast.sim.scenario import run
from ordercast.testing.campaign import MIXES, scenario
from ordercast.verify.plans import judge
from tests.planning import families
from tests.planted import planted

P, E, T = "protocols.propagation", "core.edges", "protocols.two_phase"
L, S, Q = "protocols.lamport", "protocols.swap", "protocols.sequencing"
A, C = "protocols.arrow", "protocols.combining"
G, M, F = "planning.propagation_graph", "planning.metagroup_tree", "planning.forest"
MAKER = {"literal_greedy": "propagation_graph", "metagroup": "metagroup_tree", "central": "central"}

# name, module, text, replacement, machine it is run in
MUTANTS: list[tuple[str, str, str, str, tuple[str, bool]]] = [
    ("errata 3: numbers are not advanced", E, "out.sent += 1", "out.sent = 1", ("propagation", False)),
    ("errata 5: a duplicate is parked", E, "if carry.number < edge.expected:", "if False:", ("propagation", False)),
    ("early messages are taken", E, "if carry.number == edge.expected:", "if carry.number >= edge.expected:", ("arrow", False)),
    ("nobody asks again", E, "if not edge.asked or edge.expected > edge.asked_upto:", "if False:", ("two-phase", False)),
    ("nulls are never sent", E, "if out.told == out.sent and now - out.since >= self.patience:", "if False:", ("propagation", False)),
    ("acks drop one too many", E, "range(out.acked + 1, upto + 1)", "range(out.acked + 1, min(upto + 2, out.sent + 1))", ("arrow", False)),
    ("the wait queue is not emptied", E, "while edge.expected in edge.early:", "if edge.expected in edge.early:", ("propagation", False)),
    ("resends forget the last", E, "range(first, last + 1)", "range(first, last)", ("propagation", False)),
    ("children are skipped", P, "        for child in children:\n", "        for child in children[:1]:\n", ("propagation", False)),
    ("extra nodes deliver", P, "if self.routes.delivers(self.me, envelope.groups):", "if True:", ("propagation", False)),
    ("stamps ignore what came from above", P, "tree.above = message.stamp", "pass", ("propagation", False)),
    ("stamps are not padded", P, " + _level(0) * skipped", "", ("propagation", False)),
    ("errata 6: the past is not carried", P, "self.past[self.me, group] = self.sent", "pass", ("propagation", True)),
    ("errata 7: what was delivered is not remembered", P, "            if self.causal:\n                self._remember(message)", "            pass", ("propagation", True)),
    ("the past is not waited for", P, "and self._missing(queue[0][0]) is None", "", ("propagation", True)),
    ("delivered before it is passed on, doubled", P, "effects.append(Deliver(envelope, message.stamp))", "effects += [Deliver(envelope, message.stamp)] * 2", ("propagation", False)),
    ("errata 52: the counter is not raised", T, "self.counter = max(self.counter, priority[0])", "pass", ("two-phase", False)),
    ("errata 53: priorities without sites", T, "max(undecided.highest, (priority, sender))", "max(undecided.highest, (priority, ''))", ("two-phase", False)),
    ("two-phase takes the lowest", T, "undecided.highest = max(undecided.highest, (priority, sender))", "undecided.highest = (priority, sender)", ("two-phase", False)),
    ("two-phase delivers undecided ones", T, "if not head.decided:", "if False:", ("two-phase", False)),
    ("errata 51: ties are not broken", L, "(last + 1, site) < (time, source)", "last < time - 1", ("timestamp", False)),
    ("errata 51: nobody is waited for", L, "            if silent:\n", "            if False:\n", ("timestamp", False)),
    ("errata 51: silent sources are not asked", L, "if self.asked[site] < time:", "if False:", ("timestamp", False)),
    ("the clock does not hear", L, "self.clock = max(self.clock, time)\n\n", "pass\n\n", ("timestamp", False)),
    ("errata 44: stubs are not sent", S, "if site != self.me:\n", "if site != self.me and site in members:\n", ("arrow", False)),
    ("the predecessor is not waited for", S, "chain.waiting.pop(chain.last, None)", "chain.waiting.pop(next(iter(chain.waiting), None), None)", ("combining", False)),
    ("errata 43: the own sink is forgotten", A, "if came_from == self.me:\n            self.value = swap.last", "if came_from == self.me and next_hop != self.me:\n            self.value = swap.last", ("arrow", False)),
    ("errata 48: combined in the wrong order", C, "gathered, self.gathered = self.gathered, []", "gathered, self.gathered = self.gathered[::-1], []", ("combining", False)),
    ("ticks that change an object are not logged", S, "            effects.insert(0, Append(event))  # once: what was combined when must be the same after a restart\n", "            pass\n", ("combining", False)),
    ("errata 49: the batch leaves its first", C, "combined = Swap(gathered[0].envelope, gathered[-1].last)", "combined = Swap(gathered[0].envelope, gathered[0].last)", ("combining", False)),
    ("T1 is not checked", Q, "self.delivered[group] + 1 != number", "self.delivered[group] + 1 > number", ("sequencer", False)),
    ("T2 is not checked", Q, "if group not in destination and self.delivered[group] != number:", "if False:", ("sequencer", False)),
    ("errata 30: T2 for every group", Q, "            if group not in self.delivered:\n                continue\n            if group in destination", "            if group in destination", ("sequencer", False)),
    ("errata 39: counts are not kept in order", Q, "while taken + 1 in early:", "for taken in [n - 1 for n in sorted(early)]:", ("sequencer", False)),
    ("errata 34: repeats are sequenced again", Q, "if request.count <= taken:", "if False:", ("sequencer", False)),
    ("nothing is fetched", Q, "if self.delivered.get(group, upto) < upto and group not in self.fetched:", "if False:", ("sequencer", False)),
    ("history forgets too early", Q, "min(self.stable[group].values())", "max(self.stable[group].values())", ("sequencer", False)),
    ("latest numbers are not told", Q, "if sequencing.told.get(site) == tuple(numbers):", "if False:", ("sequencer", False)),
    ("requests are not repeated", Q, "if since < now:", "if False:", ("sequencer", False)),
    ("CT2 is not checked", Q, "            if self.delivered[group] < number:\n                return f\"CT2", "            if False:\n                return f\"CT2", ("sequencer-hybrid", True)),
    ("errata 33: entries fall", "core.contexts", "max(self.entries.get(group, 0), number)", "number", ("sequencer-hybrid", True)),
    ("requests do not wait for another sequencer", Q, "if self.causal and any(asking for other, asking in self.asking.items() if other != order_class):", "if False:", ("sequencer-hybrid", True)),
    ("errata 40: foreign entries are waited for", Q, "                continue  # entries of other groups mean nothing here (errata 40)", "                return 'foreign'", ("sequencer", True)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[0])
def test_planted_bugs_are_caught(mutant: tuple[str, str, str, str, tuple[str, bool]]) -> None:
    _, module, text, replacement, kind = mutant
    with planted(module, (text, replacement)):
        for seed in range(200):
            for mix in MIXES:
                try:
                    verdict = run(scenario(kind, mix, seed))
                except (errors.PeerError, errors.LocalError, KeyError, AssertionError):
                    return
                if not verdict.ok:
                    return
    pytest.fail("survived 200 seeds")


# name, module, text, replacement, the function that plans
PLANNER_MUTANTS: list[tuple[str, str, str, str, str]] = [
    ("all intersecters are leaves", G, "for leaf in intersecters - in_partition:", "for leaf in intersecters:", "literal_greedy"),
    ("leaves are not placed", G, "self.parent[leaf] = subroot\n", "pass\n", "literal_greedy"),
    ("subtrees hang nowhere", G, "self.parent[child] = subroot\n", "pass\n", "literal_greedy"),
    ("groups enter at the child", G, "self.entry[g] = subroot\n", "self.entry[g] = min(self.members[g])\n", "literal_greedy"),
    ("the primary meta-group is the last", M, "if self.primary[group] < 0:", "if True:", "metagroup"),
    ("the subsumed are roots", M, "self.parent[other], self.marked[other] = meta, True", "self.parent[other], self.marked[other] = -1, True", "metagroup"),
    ("meta-groups hang nowhere", M, "metas[above].primary if above >= 0 else -1", "-1", "metagroup"),
    ("a centre of another class", "planning.central", "(np.arange(len(degree)), -degree, graph.node_class)", "(np.arange(len(degree)), -degree)", "central"),
    ("extra nodes are not told", F, "np.setdiff1d(reached, members)", "members[:0]", "metagroup"),
    ("the entry's own message is not counted", F, "int(self._sizes[0][-1]) + len(self.entry)", "int(self._sizes[0][-1])", "central"),
]  # fmt: skip


@pytest.mark.parametrize("mutant", PLANNER_MUTANTS, ids=lambda mutant: mutant[0])
def test_planted_bugs_in_planners_are_caught(mutant: tuple[str, str, str, str, str]) -> None:
    """By the judge of plans, which knows membership and edges only."""
    _, module, text, replacement, planner = mutant
    with planted(module, (text, replacement)):
        forests, makers = (sys.modules[f"ordercast.planning.{name}"] for name in ("forest", MAKER[planner]))
        for seed in range(200):
            family = families.uniform(8, 10, 2, seed) if seed % 2 else families.uniform(12, 8, 3, seed)
            graph = forests.ClassGraph.of(family, class_labels(family, ClassRule.BLOCKS))
            try:
                verdict = judge(getattr(makers, planner)(graph).plan(planner, Level.ACYCLIC), family.as_dict())
            except (KeyError, AssertionError, IndexError, ValueError):
                return
            if not verdict.ok or not verdict.findings["cost"].ok:
                return
    pytest.fail("survived 200 seeds")


def test_the_list_is_long_enough() -> None:
    assert len(MUTANTS) + len(PLANNER_MUTANTS) >= 25
