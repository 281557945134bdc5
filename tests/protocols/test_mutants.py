"""Planted bugs: each is one wrong line in a machine or a planner, and each must be caught within 200 seeds.

A mutant is a replacement of source text, compiled into a module of its own, so the code under test stays untouched.
"""

import os
import sys
from datetime import date

import pytest

from ordercast import ClassRule, Level, errors
from ordercast.planning.classes import class_labels
from ordercast.sim.scenario import deploy, run
from ordercast.verify.plans import judge
from tests.planning import families
from tests.support.campaign import MIXES, scenario
from tests.support.planted import planted

P, E, T = "protocols.propagation", "core.edges", "protocols.two_phase"
L, S, Q = "protocols.timestamp", "protocols.swap.multicast", "protocols.sequencing"
A, C, H, N = "protocols.swap.arrow", "protocols.swap.combining", "protocols.swap.hybrid", "protocols.swap.counting"
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
    ("stamps are not padded", P, " + stamps.level(0) * skipped", "", ("propagation", False)),
    ("errata 6: the past is not carried", P, "self.known.setdefault(me, {})[groups] = number", "pass", ("propagation", True)),
    ("errata 7: what was delivered is not remembered", P, "                self.pasts.remember(message)\n", "", ("propagation", True)),
    ("the past is not waited for", P, "and self.missing(queue[0][0]) is None", "", ("propagation", True)),
    ("delivered before it is passed on, doubled", P, "effects.append(Deliver(envelope, message.stamp))", "effects += [Deliver(envelope, message.stamp)] * 2", ("propagation", False)),
    ("errata 52: the counter is not raised", T, "self.counter = max(self.counter, priority[0])", "pass", ("two-phase", False)),
    ("errata 53: priorities without sites", T, "max(undecided.highest, (priority, sender))", "max(undecided.highest, (priority, ''))", ("two-phase", False)),
    ("two-phase takes the lowest", T, "undecided.highest = max(undecided.highest, (priority, sender))", "undecided.highest = (priority, sender)", ("two-phase", False)),
    ("two-phase delivers undecided ones", T, "if not head.decided:", "if False:", ("two-phase", False)),
    ("errata 51: ties are not broken", L, "last < before or (last == before and site < source)", "last < before", ("timestamp", False)),
    ("errata 51: nobody is waited for", L, "            if silent:\n", "            if False:\n", ("timestamp", False)),
    ("errata 51: silent sources are not asked", L, "if self.asked[site] < time:", "if False:", ("timestamp", False)),
    ("the clock does not hear", L, "self.clock = max(self.clock, time)\n\n", "pass\n\n", ("timestamp", False)),
    ("errata 44: stubs are not sent", S, "if site != self.me:\n", "if site != self.me and site in members:\n", ("arrow", False)),
    ("the predecessor is not waited for", S, "self.waiting.pop(self.last, None)", "self.waiting.pop(next(iter(self.waiting), None), None)", ("combining", False)),
    ("errata 43: the own sink is forgotten", A, "if came_from == self.me:\n            self.value = swap.last", "if came_from == self.me and next_hop != self.me:\n            self.value = swap.last", ("arrow", False)),
    ("errata 48: combined in the wrong order", C, "gathered, self.gathered = self.gathered, []", "gathered, self.gathered = self.gathered[::-1], []", ("combining", False)),
    ("ticks that change an object are not logged", S, "            effects.insert(0, Append(event))  # what was combined when must be the same after a restart\n", "            pass\n", ("combining", False)),
    ("errata 49: the batch leaves its first", C, "combined = Swap(gathered[0].envelope, gathered[-1].last, gathered[0].bare)", "combined = Swap(gathered[0].envelope, gathered[0].last, gathered[0].bare)", ("combining", False)),
    ("T1 is not checked", Q, "self.delivered[group] + 1 != number", "self.delivered[group] + 1 > number", ("sequencer", False)),
    ("T2 is not checked", Q, "if group not in destination and self.delivered[group] != number:", "if False:", ("sequencer", False)),
    ("errata 30: T2 for every group", Q, "            if group not in self.delivered:\n                continue\n            if group in destination", "            if group in destination", ("sequencer", False)),
    ("errata 39: counts are not kept in order", Q, "while taken + 1 in early:", "for taken in [n - 1 for n in sorted(early)]:", ("sequencer", False)),
    ("errata 34: repeats are sequenced again", Q, "if count <= taken:", "if False:", ("sequencer", False)),
    ("nothing is fetched", Q, "if self.delivered.get(group, upto) < upto and group not in self.fetched:", "if False:", ("sequencer", False)),
    ("history forgets too early", Q, "everywhere = min(self.stable[group].values())", "everywhere = max(self.stable[group].values())", ("sequencer", False)),
    ("latest numbers are not told", Q, " if self.told.get(site) == numbers]", " if False]", ("sequencer", False)),
    ("requests are not repeated", Q, "if since < now:", "if False:", ("sequencer", False)),
    ("the answer of a swap goes to its finder", S, "effects.append(self.edges.send(envelope.source, 1, Found(predecessor, envelope.number)))", "self._multicast(predecessor, envelope, effects)", ("arrow", False)),
    ("a source multicasts without its body", S, "self._multicast(predecessor, self.asking.pop(number)[0], effects)", "self._multicast(predecessor, msgspec.structs.replace(self.asking.pop(number)[0], body=b''), effects)", ("hybrid", False)),
    ("a place without a body is delivered", Q, '"its body has not come from its sender" if accept.bare else None', "None", ("sequencer", False)),
    ("a body that comes after its place is not looked at", Q, "if accept.bare and key[0] == part and", "if False and", ("sequencer", False)),
    ("a body that comes late is kept", Q, "envelope.number > self.last.get(sender, 0) and ", "", ("sequencer", False)),
    ("bodies are kept after their delivery", Q, "if number > envelope.number}", "if number >= envelope.number}", ("sequencer", False)),
    ("CT2 is not checked", Q, "            if self.delivered[group] < number:\n                return f\"CT2", "            if False:\n                return f\"CT2", ("sequencer-hybrid", True)),
    ("errata 33: entries fall", "core.contexts", "max(self.entries.get(group, 0), number)", "number", ("sequencer-hybrid", True)),
    ("requests do not wait for another sequencer", Q, "if self.causal and any(asking for other, asking in self.asking.items() if other != part):", "if False:", ("sequencer-hybrid", True)),
    ("errata 40: foreign entries are waited for", Q, "                continue  # entries of other groups mean nothing here (errata 40)", "                return 'foreign'", ("sequencer", True)),
]  # fmt: skip

BODY = "effects.append(self.edges.send(site, 1, full if site in members else stub))"
REFUSED = "return self._sequencer_of(envelope.groups[0]).refusal(message) is None"
REPORTED = "return number > self.stable[group][site]"
SHORT = ("HISTORY_AT_MOST = 1024", "HISTORY_AT_MOST = 6")

# What an outside review planted unseen, and forty more of other kinds: several groups at once, receipts, what is logged
# and when, what must shrink, what a replay must rebuild. Name, module, replacements, machine.
MORE: list[tuple[str, str, list[tuple[str, str]], tuple[str, bool]]] = [
    ("members of a swap get the stub", S, [(BODY, BODY.replace("full if site in members else stub", "stub"))], ("arrow", False)),
    ("members of a counter get the stub", N, [(BODY, BODY.replace("full if site in members else stub", "stub"))], ("arrow-counting", False)),
    ("a receipt carries another stamp", P, [("place = Place(envelope.number, stamp)", "place = Place(envelope.number, stamp + b'!')")], ("propagation", False)),
    ("a source is never told its place", P, [("self._tell_place(envelope, message.stamp, effects)", "pass")], ("propagation", False)),
    ("propagation sends before it logs what came", P, [("[Append(event)] if self.edges.is_new(event.sender, message) else []", "[]"), ("take(key, inner, number, effects)\n        elif", "take(key, inner, number, effects)\n            effects.append(Append(event))\n        elif")], ("propagation", False)),
    ("propagation sends before it logs a multicast", P, [("effects: list[Effect] = [Append(multicast)]", "effects: list[Effect] = []"), ("message, number, effects)\n            return effects\n", "message, number, effects)\n            return [*effects, Append(multicast)]\n"), ("        return effects\n\n    def _safe(", "        return [*effects, Append(multicast)]\n\n    def _safe(")], ("propagation", False)),
    ("edges send before they log what came", E, [("effects: list[Effect] = [Append(event)]\n            ready", "effects: list[Effect] = []\n            ready"), ("[Append(event)] if edges.is_new(sender, carry) else []", "[]"), ("str(error)))\n        return effects", "str(error)))\n        return [*effects, Append(event)]")], ("two-phase", False)),
    ("edges send before they log a multicast", E, [("effects = [Append(event)]\n        originate(event, effects)\n        return effects", "effects = []\n        originate(event, effects)\n        return [*effects, Append(event)]")], ("timestamp", False)),
    ("a sequencer sends before it logs", Q, [("    effects.append(Append(event))\n            self._take", "    self.late = True\n            self._take"), ("self._sequence_own(effects)\n        elif", "self._sequence_own(effects)\n            effects += [Append(event)] if self.__dict__.pop('late', False) else []\n        elif")], ("sequencer", False)),
    ("a lost report is never sent again", Q, [("self.member.reported[group] = 0  # our report was lost: the next tick sends it again", "pass")], ("sequencer", False)),
    ("errata 66: a union does not name what went before", P, [("elif len(groups) > 1 or part in self.several:", "elif False:")], ("propagation", False)),
    ("a message after a union names nothing", P, [("elif len(groups) > 1 or part in self.several:", "elif len(groups) > 1:")], ("propagation", False)),
    ("what was passed on is not noted", P, [("self.waiting.seen[envelope.source, envelope.groups] = envelope.number", "pass")], ("propagation", False)),
    ("everything named is waited for everywhere", P, [("                and self.routes.passes(self.me, groups)\n", "")], ("propagation", True)),
    ("a union passes where its first group does", P, [("and self.routes.passes(self.me, groups)\n            ):", "and self.me in self.routes.groups[groups[0]].members\n            ):")], ("propagation", True)),
    ("only one stream is released", P, [("        while moved:\n", "        if moved:\n")], ("propagation", True)),
    ("held messages are passed on last first", P, [("self.queues.setdefault(key, deque()).append(", "self.queues.setdefault(key, deque()).appendleft(")], ("propagation", True)),
    ("safe before anybody has it", P, [("self.edges.owe((HERE, stream), number, [(entry, stream)])", "self.edges.owe((HERE, stream), number, [])")], ("propagation", False)),
    ("safe before the children have it", P, [("self.edges.owe(key, number, [(child, down) for child in children])", "self.edges.owe(key, number, [])")], ("propagation", False)),
    ("a source calls all it sent safe", P, [("safe = self.own.safe_upto if self.causal else 0", "safe = self.source.sent")], ("propagation", True)),
    ("all of a source is forgotten with its first", P, [("if last > number}", "if False}")], ("propagation", True)),
    ("silent sources do not say what is safe", P, [("if self.told_safe < self.sent == self.safe_upto:", "if False:")], ("propagation", True)),
    ("every site is a root", P, [("Tree(self.routes.depth(part, self.me),", "Tree(0,")], ("propagation", False)),
    ("two messages have one stamp", P, [("        self.counter += 1\n", "        self.counter = 1\n")], ("propagation", False)),
    ("acknowledged before the subtree has it", E, [("Ack(stream, edge.settled, beyond)", "Ack(stream, edge.expected - 1)")], ("propagation", False)),
    ("what is acknowledged is kept for ever", E, [("if kept.pop(number, None) is not None and", "if kept.get(number) is not None and")], ("arrow", False)),
    ("the wrong number is sent again", E, [("Send(sender, out.kept[n], self.class_id) for n", "Send(sender, out.kept[max(out.kept)], self.class_id) for n")], ("timestamp", False)),
    ("what is stable is not logged", Q, [SHORT, (REPORTED, "return False")], ("sequencer", False)),
    ("the sequencer's own deliveries are not stable", Q, [("sequencer.report(group, self.me, number)", "pass")], ("sequencer", False)),
    ("own requests that met a full history are not looked at again", Q, [SHORT, ("self._take(sender, message, effects)\n            self._sequence_own(effects)", "self._take(sender, message, effects)")], ("sequencer", False)),
    ("contexts hold the destination only", Q, [("meets = sorted({other for group in envelope.groups for other in self.meets[group]})", "meets = sorted(envelope.groups)")], ("sequencer", False)),
    ("places do not grow", Q, [("        self.place += 1\n", "        self.place = 1\n")], ("sequencer", False)),
    ("a union counts up its first group only", Q, [("        for group in envelope.groups:\n            self.numbers[group] += 1", "        for group in envelope.groups[:1]:\n            self.numbers[group] += 1")], ("sequencer", False)),
    ("a union is in the history of its first group only", Q, [("        for group in envelope.groups:\n            self.history", "        for group in envelope.groups[:1]:\n            self.history")], ("sequencer", False)),
    ("accepted requests are not logged", Q, [(REFUSED, "return False")], ("sequencer", False)),
    ("ACCEPTs are not logged", Q, [("return own or not (self.member.waits(part, message) or self.member.has(message))", "return False")], ("sequencer", False)),
    ("the newest request goes first", Q, [("self.unsent.popleft()", "self.unsent.rotate(); self.unsent.popleft()")], ("sequencer", True)),
    ("errata 67: destinations are not told apart", T, [("if not line or line[-1][0] != envelope.groups:", "if not line:")], ("two-phase", False)),
    ("proposals are all alike", T, [("                self.counter += 1\n", "                self.counter = max(self.counter, 1)\n")], ("two-phase", False)),
    ("priorities are told without their site", T, [("stamps.at(self.epoch, number, site)", "stamps.at(self.epoch, number)")], ("two-phase", False)),
    ("one destination hears the decision", T, [("for site in undecided.destinations:\n                self._to(site, Decide", "for site in undecided.destinations[:1]:\n                self._to(site, Decide")], ("two-phase", False)),
    ("the last proposal is not waited for", T, [("if not undecided.waiting_for:", "if len(undecided.waiting_for) <= 1:")], ("two-phase", False)),
    ("a clock stands still", L, [("        self.clock += 1\n", "        self.clock = max(self.clock, 1)\n")], ("timestamp", False)),
    ("who is asked does not raise its clock", L, [("                self.clock = max(self.clock, time)\n                effects", "                effects")], ("timestamp", False)),
    ("a union reaches its first group only", L, [("self.groups.union(multicast.groups)", "self.groups.union(multicast.groups[:1])")], ("timestamp", False)),
    ("positions count own deliveries only", S, [("            self.count += 1\n            if self.me in", "            if self.me in"), ("                effects.append(Deliver(ready, ", "                self.count += 1\n                effects.append(Deliver(ready, ")], ("arrow", False)),
    ("an outsider's message is left out of the chain", S, [("            case Request(envelope):\n                self._swap(self.me, Swap(envelope, key_of(envelope)), effects)", "            case Request(envelope):\n                self._swap(self.me, Swap(envelope, (self.me, 1, 0)), effects)")], ("combining", False)),
    ("arrows are not turned", A, [("next_hop, self.link = self.link, came_from", "next_hop = self.link")], ("arrow", False)),
    ("what is below the virtual root is taken for a fellow", H, [("came_from if came_from in self.fellows else self.me", "came_from")], ("hybrid", False)),
    ("a combined message is its own predecessor", C, [("(before.last, after.envelope) for", "(before.last, before.envelope) for")], ("combining", False)),
    ("the number moves on unchanged", N, [("Grant(self.number)))", "Grant(self.number - 1)))")], ("arrow-counting", False)),
    ("a crowd counts as one", N, [("            counted += count.amount\n", "            counted += 1\n")], ("combining-counting", False)),
    ("the root forgets what it counted", N, [("self.climbing, self.counted = [], counted", "self.climbing = []")], ("combining-counting", False)),
    ("one child's acknowledgement settles a message", "core.settling", [("self._incoming(key).owed[number] = len(sent)", "self._incoming(key).owed[number] = 1")], ("propagation", False)),
    ("an own message is safe at its entry's first child", "core.settling", [("self.own[number] = len(sent)", "self.own[number] = 1")], ("propagation", False)),
    ("what is beyond a gap is told one too far", "core.settling", [("ranges[-1] = (ranges[-1][0], number)", "ranges[-1] = (ranges[-1][0], number + 1)")], ("propagation", False)),
    ("a site tells that it received more than it has", "core.streams", [("counts.acked, counts.received))", "counts.acked, counts.received + 1))")], ("two-phase", False)),
    ("a sequencer tells that it took more than it has", Q, [("Counts(received=sequencing[part].taken_of(peer))", "Counts(received=sequencing[part].taken_of(peer) + 1)")], ("sequencer", False)),
    ("a member's counts are compared with another group", Q, [("found[stream] = Counts(received=member.delivered[group])", "found[stream] = Counts(received=max(member.delivered.values()))")], ("sequencer", False)),
    ("a snapshot forgets what the edges have received", E, [("_sorted(state.outgoing), _sorted(state.incoming)", "_sorted(state.outgoing), {}")], ("arrow", False)),
    ("a snapshot forgets what is not acknowledged", E, [("_sorted(state.outgoing), _sorted(state.incoming)", "{}, _sorted(state.incoming)")], ("two-phase", False)),
    ("a snapshot forgets what is held back", P, [("self.waiting.queues = {key: deque(queue) for key, queue in state.waiting}", "self.waiting.queues = {}")], ("propagation", True)),
    ("a snapshot forgets bodies whose place has not come", P, [("self.bodies.kept = dict(state.bodies)", "self.bodies.kept = {}")], ("propagation", False)),
    ("a body that comes after its place is not looked at", P, [("        if self.waiting.queues:\n            self._release(effects)\n", "")], ("propagation", False)),
    ("a place is delivered without its body", P, [("if message.bare and (body := self.bodies.missing(message)):\n            return body", "if False:\n            return ''"), ("body=self.kept.pop(key_of(message.envelope))", "body=self.kept.pop(key_of(message.envelope), b'')")], ("propagation", False)),
    ("a body is kept after its delivery", P, [("self.kept.pop(key_of(message.envelope))", "self.kept[key_of(message.envelope)]")], ("propagation", False)),
    ("extra nodes wait for bodies, too", P, [("key_of(envelope) in self.kept or self.routes.relays(self.me, envelope.groups)", "key_of(envelope) in self.kept")], ("propagation", False)),
    ("a place goes to the end of the shortcut", P, [("self.edges.send(child, 2 * part + 1, place_of(message)", "self.edges.send(ends.get(child, child), 2 * part + 1, place_of(message)")], ("propagation", False)),
    ("a snapshot forgets what was passed on", P, [("self.waiting.seen = state.pasts, state.trees, state.seen", "self.waiting.seen = state.pasts, state.trees, {}")], ("propagation", True)),
    ("a snapshot forgets the counters of the trees", P, [("self.waiting.seen = state.pasts, state.trees, state.seen", "self.waiting.seen = state.pasts, {}, state.seen")], ("propagation", False)),
    ("a snapshot forgets the queue of priorities", T, [("self.queued = dict(state.queue)", "self.queued = {}")], ("two-phase", False)),
    ("a snapshot forgets the clock", L, [("self.clock, self.queue = state.clock, state.queue", "self.clock, self.queue = 0, state.queue")], ("timestamp", False)),
    ("a snapshot forgets the arrow", S, [("self.object.restore(state.swap_object)", "pass")], ("arrow", False)),
    ("a snapshot forgets what was gathered", C, [("self.value, self.gathered, self.busy = state.value, state.gathered, state.busy", "self.value, self.busy = state.value, state.busy")], ("combining", False)),
    ("a snapshot forgets what came early", N, [("self.next, self.early = state.next, state.early", "self.next, self.early = state.next, {}")], ("arrow-counting", False)),
    ("a snapshot forgets what waits for its turn", Q, [("self.unsent = deque(state.unsent)", "self.unsent = deque()")], ("sequencer-hybrid", True)),
    ("a snapshot forgets what was taken", Q, [("state.numbers, state.place, state.taken, state.early", "state.numbers, state.place, {}, state.early")], ("sequencer", False)),
    ("a context loses an entry", "core.contexts", [("return tuple(sorted(self.entries.items()))", "return tuple(sorted(self.entries.items()))[1:]")], ("sequencer-hybrid", True)),
]  # fmt: skip
ALL = [(name, module, [(text, other)], kind) for name, module, text, other, kind in MUTANTS] + MORE
CHOSEN = ALL if "ORDERCAST_CAMPAIGN" in os.environ else ALL[date.today().toordinal() % 8 :: 8]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHOSEN, ids=lambda mutant: mutant[0])
def test_planted_bugs_are_caught(mutant: tuple[str, str, list[tuple[str, str]], tuple[str, bool]]) -> None:
    """A third of them, others every day; all of them in `make sim`."""
    _, module, replacements, kind = mutant
    with planted(module, *replacements):
        for seed in range(200):
            for mix in MIXES:
                case = scenario(kind, mix, seed)  # outside: only what a machine does counts as caught
                deploy(case)
                try:
                    verdict = run(case)
                except (errors.PeerError, errors.LocalError, KeyError, AssertionError, IndexError):
                    return
                if not verdict.ok:
                    return
    pytest.fail("survived 200 seeds")


def test_every_planted_bug_is_one() -> None:
    """Each replaces a text that occurs once in the code of today."""
    for _, module, replacements, _ in ALL:
        with planted(module, *replacements):
            pass


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
    ("extra nodes are not told", F, "names[s] for s in sorted(extra)", "names[s] for s in ()", "metagroup"),
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
    assert len(MORE) >= 72
    assert len(MUTANTS) + len(PLANNER_MUTANTS) >= 25
