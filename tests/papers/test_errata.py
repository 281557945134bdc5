"""Each confirmed erratum of the machines: the rule as printed fails in the stated way, ours passes the same case.

The printed rule is planted into our machine where a line of it is what was repaired (`tests.support.planted`), and
written out as a small model where we do it in another way altogether.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
from msgspec.structs import replace

from ordercast import ClassRule, Level, Membership
from ordercast.core.configuration import Configuration
from ordercast.errors import InputError, PeerError
from ordercast.protocols.registry import Deployment
from ordercast.sim.explorer import Case, Explorer
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, judge
from ordercast.sim.world import World
from ordercast.testing.script import Script
from tests.support.planted import planted

Q, S, T = "protocols.sequencing", "protocols.swap.multicast", "protocols.two_phase"
OURS = nullcontext()


def play(text: str, rule: AbstractContextManager[None] = OURS) -> list[str]:
    """Run the commands of a text case and return what happened."""
    said: list[str] = []
    with rule:
        script = Script()
        for line in text.strip().splitlines():
            said += script.run(line.strip())
    return said


def log(said: list[str], site: str) -> list[str]:
    return [line.split()[-1] for line in said if line.startswith(f"{site} delivers ")]


def explored(deployment: Deployment, orders: str, rule: AbstractContextManager[None] = OURS) -> dict[str, str]:
    """Try every interleaving of "source group" orders and return what is broken."""
    multicasts = tuple((order[0], (order[1],)) for order in orders.split())
    sources = tuple(sorted({source for source, _ in multicasts}))
    groups = replace(deployment.groups, sources=sources)
    with rule:
        fresh = Deployment(deployment.protocol, groups, deployment.plan, deployment.level, deployment.causal)
        return Explorer(Case(fresh, multicasts)).run().findings


# GS88: the MP protocol.


def test_errata_3_next_seq_out_is_never_advanced() -> None:
    """The second message of a source has the first one's number and is never taken."""
    case = "deploy propagation A=a,b x \n multicast x A \n multicast x A \n carry all \n tick \n carry all"
    printed = play(case, planted("core.edges", ("out.sent += 1", "out.sent = 1")))

    assert log(printed, "b") == ["x:1"]
    assert log(play(case), "b") == ["x:1", "x:2"]


def test_errata_4_the_sender_is_overwritten_before_its_counter_is_advanced() -> None:
    """The counter of the receiver itself goes up; the second message of the same sender is stuck."""
    rule = (
        "            edge.expected += 1\n            ready = [carry.message]\n",
        '            self._incoming(("me", 0)).expected += 1\n            ready = [carry.message]\n',
    )
    case = "deploy propagation A=a,b x \n multicast x A \n multicast x A \n carry all \n held"
    printed = play(case, planted("core.edges", rule))

    assert "x:2" not in log(printed, "b")
    assert any("number 1 from x is missing" in line for line in printed)
    assert log(play(case), "b") == ["x:1", "x:2"]


def test_errata_5_a_duplicate_sits_at_the_head_of_the_wait_queue() -> None:
    """Three messages and a duplicate: the duplicate is parked, and what is behind it is never looked at."""
    rules = (
        ("if carry.number < edge.expected:", "if False:"),
        ("while edge.expected in edge.early:", "while min(edge.early, default=0) == edge.expected:"),
    )
    case = """deploy propagation A=a,b x
        multicast x A \n multicast x A \n multicast x A
        double x->a
        carry x->a
        last x->a
        carry all
        held"""
    printed = play(case, planted("core.edges", *rules))

    assert log(printed, "a") == ["x:1", "x:2"]
    assert printed[-1].startswith("a: ")
    assert log(play(case), "a") == ["x:1", "x:2", "x:3"]
    assert play(case)[-1] == "nothing"


def test_errata_5_five_thousand_waiting_messages_are_no_recursion() -> None:
    lines = ["deploy propagation A=a x", *["multicast x A"] * 5001, *["last x->a"] * 5000, "carry x->a"]

    assert len(log(play("\n".join(lines)), "a")) == 5001


def two_entries(causal: str) -> str:
    return f"""plan greedy A=a,c,d B=a,c
        tree d->c c->a
        deploy propagation {causal} x e"""


def test_errata_6_a_source_s_messages_to_two_groups() -> None:
    """d->c->a; A enters at d, B at c: x sends to A, then to B, and c delivers the second first."""
    story = "\n multicast x A \n multicast x B \n carry x->c x->d d->c \n carry all \n held"

    assert log(play(two_entries("") + story), "c") == ["x:2", "x:1"]
    assert log(play(two_entries("causal") + story), "c") == ["x:1", "x:2"]
    assert play(two_entries("causal") + story)[-1] == "nothing"


def test_errata_7_request_and_reply_across_groups() -> None:
    """d->c->a, d->e: e delivers a message to A and answers to B, and c has the answer first."""
    begin = "plan greedy A=a,c,d,e B=a,c \n tree d->c c->a d->e \n deploy propagation {} x"
    story = "\n multicast x A \n carry x->d d->e \n multicast e B \n carry e->c d->c \n carry all \n held"

    assert log(play(begin.format("") + story), "c") == ["e:1", "x:1"]
    assert log(play(begin.format("causal") + story), "c") == ["x:1", "e:1"]
    assert play(begin.format("causal") + story)[-1] == "nothing"


def test_errata_8_the_union_of_orders_has_no_cycle_on_tree_edges() -> None:
    """Three groups of two in a ring: every interleaving over the tree is acyclic."""
    ring = deploy(Scenario(Membership.of({"A": "pq", "B": "qr", "C": "pr"})))

    assert explored(ring, "xA yB zC") == {}


def test_errata_8_a_shortcut_destroys_it() -> None:
    """MGT figure 4 with its shortcut (§4.2): <ABC> sends C's messages past <AD>; the judge refuses such a plan."""
    said = play("plan greedy A=p,q B=p,r C=p,s D=q,s \n tree p->q q->s p->r \n reroute C p->s \n judge")

    assert any(line.startswith("acyclic: no") or line.startswith("PG1: no") for line in said)


# KIN: the sequencing service.


def test_errata_30_t2_with_an_empty_start_never_holds() -> None:
    """C_m has <H,0> and D_p has no entry for H: the first message is stuck."""
    rule = (
        "if group not in destination and self.delivered[group] != number:",
        "if group not in destination and (self.delivered[group] or -1) != number:",
    )
    case = "deploy sequencer G=a,b H=a,b x \n multicast x G \n carry all \n held"
    printed = play(case, planted(Q, rule))

    assert log(printed, "b") == []
    assert any("T2: H is at 0, must be at 0" in line for line in printed)
    assert log(play(case), "b") == ["x:1"]


def test_errata_31_s2_allows_cycles_of_three() -> None:
    """G={p,q}, H={q,r}, I={r,p} at three sequencers: pairwise fine, no serial order; with blocks there is one."""
    ring = Membership.of({"G": "pq", "H": "qr", "I": "pr"})
    by_s2 = deploy(Scenario(ring, "sequencer", level=Level.TOTAL))
    assert explored(by_s2, "xG yH zI") == {}

    too_much = replace(by_s2, level=Level.ACYCLIC)
    assert set(explored(too_much, "xG yH zI")) == {"acyclic"}
    with pytest.raises(InputError, match="classes s2 do not keep the level acyclic"):
        deploy(Scenario(ring, "sequencer", class_rule=ClassRule.S2))
    assert explored(deploy(Scenario(ring, "sequencer", class_rule=ClassRule.BLOCKS)), "xG yH zI") == {}


def test_errata_32_t2_in_place_of_ct2_deadlocks() -> None:
    """m1 to H, m2 to G after it, then m3 to H arrives at b before m2: "equal" never holds again."""
    rule = (
        '            if self.delivered[group] < number:\n                return f"CT2',
        '            if self.delivered[group] != number:\n                return f"CT2',
    )
    case = """deploy sequencer causal alone G=a,b H=b,c x y
        multicast x H
        carry x->b b->c b->x
        multicast x G
        carry x->a
        multicast y H
        carry y->b
        carry all
        held"""
    printed = play(case, planted(Q, rule))

    assert log(printed, "b") == ["x:1", "y:1"]
    assert any("CT2: H is at 2" in line for line in printed)
    assert log(play(case), "b") == ["x:1", "y:1", "x:2"]


def test_errata_33_a_late_accept_lowers_c_p() -> None:
    """X has learned of G:2 through H when the ACCEPT of its own G:1 arrives: its next message forgets G:2."""
    case = """deploy sequencer causal alone G=g,y,r H=h,x,y K=k,r
        multicast x G
        carry x->g
        multicast y G
        carry y->g g->y g->y
        carry g->r
        multicast y H
        carry y->h h->x
        carry g->x
        multicast x K
        carry x->k k->r
        carry all
        held"""
    printed = play(case, planted("core.contexts", ("max(self.entries.get(group, 0), number)", "number")))

    assert log(printed, "r") == ["x:1", "x:2", "y:1"]  # x:2 comes after y:1, which x knew of
    assert log(play(case), "r") == ["x:1", "y:1", "x:2"]


def test_errata_34_identifiers_collide_across_groups() -> None:
    """Counts per group, looked up without the group: the first to H is taken for a repetition of the first to G."""
    asked = ("count = self.counted.get(part, 0) + 1", "count = self.counted.get(envelope.groups[0], 0) + 1")
    counted = ("self.counted[part] = count", "self.counted[envelope.groups[0]] = count")
    case = "deploy sequencer G=a,b H=a,b x \n multicast x G \n multicast x H \n carry all"
    printed = play(case, planted(Q, asked, counted))

    assert log(printed, "b") == ["x:1"]
    assert log(play(case), "b") == ["x:1", "x:2"]


def test_errata_40_entries_of_foreign_groups() -> None:
    """C is in H and not in G: it waits for ever for G's number; only entries of own groups matter."""
    rule = (
        "                continue  # entries of other groups mean nothing here (errata 40)",
        "                return 'foreign'",
    )
    case = """deploy sequencer causal alone G=a,b H=b,c x
        multicast x G
        carry x->a a->x a->b
        multicast x H
        carry all
        held"""
    printed = play(case, planted(Q, rule))

    assert log(printed, "c") == []
    assert log(play(case), "c") == ["x:2"]
    assert play(case)[-1] == "nothing"


class _SeqTable:
    """KIN §5 as printed: a member keeps the number of each client's last message, to put for SEQ(id)."""

    def __init__(self) -> None:
        self.last: dict[str, tuple[int, int]] = {}

    def deliver(self, client: str, count: int, number: int) -> None:
        self.last[client] = (count, number)

    def number_of(self, client: str, count: int) -> int | None:
        known = self.last.get(client)
        return known[1] if known is not None and known[0] == count else None


def test_errata_41_seq_id_is_evicted() -> None:
    """R delivers m1 and m3 of x; then q's message with SEQ(m1) arrives and can never be resolved."""
    table = _SeqTable()
    table.deliver("x", 1, number=1)
    table.deliver("x", 2, number=2)

    assert table.number_of("x", 1) is None

    case = """deploy sequencer causal alone G=r,s H=q,r K=q,x
        multicast x G
        carry x->r r->s r->x
        multicast x K
        carry x->q q->x
        multicast x G
        carry all
        multicast q H
        carry all
        held"""
    said = play(case)

    assert log(said, "r") == ["x:1", "x:3", "q:1"]
    assert said[-1] == "nothing"


def test_errata_42_causal_with_waiting_senders_is_right() -> None:
    """CT1 and CT2 over every interleaving of a ring of groups, a sequencer for each."""
    ring = Scenario(Membership.of({"G": "pq", "H": "qr", "I": "pr"}), "sequencer", causal=True, groups_alone=True)

    assert explored(deploy(ring), "pG qH rI") == {}


# HTW00: the swaps.


def test_errata_43_a_second_multicast_becomes_its_own_predecessor() -> None:
    rule = (
        "        predecessor = self.value\n        if came_from == self.me:\n            self.value = swap.last\n",
        "        if came_from == self.me:\n            self.value = swap.last\n        predecessor = self.value\n",
    )
    case = "deploy arrow A=a,b,c \n multicast b A \n multicast b A \n carry all \n held"
    printed = play(case, planted("protocols.swap.arrow", rule))

    assert log(printed, "c") == ["b:1"]
    assert any("its predecessor ('b', 1, 2) was not delivered" in line for line in printed)
    assert log(play(case), "c") == ["b:1", "b:2"]


def test_errata_44_one_object_per_group_orders_nothing_across_groups() -> None:
    pair = Membership.of({"A": "ab", "B": "ab"})
    together = deploy(Scenario(pair, "arrow"))
    alone = Deployment("arrow", Configuration.of(pair.as_dict(), [["A"], ["B"]], ()))

    assert {"acyclic", "total"} <= set(explored(alone, "bB bB aA"))
    assert explored(together, "bB bB aA") == {}


def test_errata_44_without_stubs_members_wait_for_what_they_never_get() -> None:
    case = "deploy arrow A=a,b B=b,c C=a,c \n multicast a A \n carry all \n multicast b B \n carry all \n held"
    printed = play(case, planted(S, ("if site != self.me:\n", "if site != self.me and site in members:\n")))

    assert log(printed, "c") == []
    assert any("its predecessor ('a', 1, 1) was not delivered" in line for line in printed)
    assert log(play(case), "c") == ["b:1"]


def gapped(pairs: list[tuple[str | None, str]]) -> Iterator[str]:
    """Order with gaps from predecessors alone (HTW00 §6.3): what can never be linked is delivered as it came."""
    known = {message for _, message in pairs}
    for predecessor, message in pairs:
        if predecessor is None or predecessor not in known:
            yield message


def test_errata_47_fragments_cannot_be_ordered_by_predecessors() -> None:
    """V lost m1 and m3 and has m4 before m2; with numbered edges it asks for what it lacks."""
    assert list(gapped([("m3", "m4"), ("m1", "m2")])) == ["m4", "m2"]

    case = """deploy arrow A=a,b
        multicast a A \n multicast a A \n multicast a A \n multicast a A
        drop a->b
        last a->b
        carry a->b
        drop a->b
        tick \n carry all \n tick \n carry all \n tick \n carry all
        held"""
    said = play(case)

    assert log(said, "b") == ["a:1", "a:2", "a:3", "a:4"]
    assert said[-1] == "nothing"


def test_errata_48_combining_in_any_order_inverts_a_source() -> None:
    """A source's second and third message combine behind its first: who goes first there goes first everywhere."""
    rule = ("gathered, self.gathered = self.gathered, []", "gathered, self.gathered = self.gathered[::-1], []")
    sends = "multicast d A \n multicast d A \n multicast d A"
    case = f"deploy combining A=a,b,c,d \n {sends} \n carry all" + "\n tick \n carry all" * 4
    printed = play(case, planted("protocols.swap.combining", rule))

    assert log(printed, "c") == ["d:1", "d:3", "d:2"]
    assert log(play(case), "c") == ["d:1", "d:2", "d:3"]


def test_errata_49_a_batch_at_the_root_of_the_hybrid_leaves_its_last() -> None:
    """Two messages of h combine below the root; a literal swap(id) leaves the first, and b's comes after it, too."""
    first = "(swap.envelope.source, swap.envelope.incarnation, swap.envelope.number)"
    rule = ("self.value = swap.last", f"self.value = {first}")
    ask = "multicast h A \n multicast h A \n multicast h A"
    carry = "\n carry all" + "\n tick \n carry all" * 4
    case = f"deploy hybrid A=a,b,c,d,e,f,g,h \n {ask} {carry} \n multicast b A {carry}"
    ours = play(case)

    with pytest.raises(PeerError, match=r"two messages after .*: b:1"):
        play(case, planted("protocols.swap.arrow", rule))
    assert {tuple(log(ours, site)) for site in "abcdefgh"} == {("h:1", "h:2", "h:3", "b:1")}


# The baselines of GS88 §2.


@pytest.mark.parametrize(
    "rule",
    [
        ("last < before or (last == before and site < source)", "last < before"),
        ("for site, last in self.heard.items()", "for site, last in ()"),
    ],
    ids=["ties", "sources of other groups"],
)
def test_errata_51_timestamps(rule: tuple[str, str]) -> None:
    """Equal times are taken in any order, or sources that might still send are not waited for."""
    pair = deploy(Scenario(Membership.of({"A": "pq"}), "timestamp"))

    assert "acyclic" in explored(pair, "xA yA", planted("protocols.timestamp", rule))
    assert explored(pair, "xA yA") == {}


@pytest.mark.slow
def test_errata_52_the_counter_is_raised_to_the_final_priority() -> None:
    pair = deploy(Scenario(Membership.of({"A": "pq", "B": "q"}), "two-phase"))
    rule = ("self.counter = max(self.counter, priority[0])", "pass")

    assert "acyclic" in explored(pair, "xB yA zA", planted(T, rule))
    assert explored(pair, "xB yA zA") == {}


def test_errata_53_priorities_are_pairs() -> None:
    """Both messages are decided at 2; by number alone the tie falls one way at p and the other way at q."""
    tie = "key[0] if self.me == 'p' else chr(255 - ord(key[0]))"
    rule = ("insort(self.queue, (*priority, key))", f"insort(self.queue, (priority[0], {tie}, key))")
    case = "deploy two-phase A=p,q x y \n multicast x A \n multicast y A \n carry x->p y->p y->q x->q \n carry all"
    printed = play(case, planted(T, rule))

    assert (log(printed, "p"), log(printed, "q")) == (["x:1", "y:1"], ["y:1", "x:1"])
    assert log(play(case), "p") == log(play(case), "q")


def test_errata_54_two_phase_is_not_fifo_across_destinations() -> None:
    """m1 to A and B, m2 to A: where a counter of B is high m2 overtakes, unless it waits for m1's priority."""
    rule = (
        "envelope is None or any(number not in self.lines[group][0][1] for group in envelope.groups):",
        "envelope is None:",
    )
    close = ("self._close(undecided.envelope)", "pass")
    case = """deploy two-phase A=p B=q C=p,q x y
        multicast y B \n carry y->q q->y y->q
        multicast y B \n carry y->q q->y y->q
        multicast x A B
        multicast x A
        carry all"""
    printed = play(case, planted(T, rule, close))

    assert log(printed, "p") == ["x:2", "x:1"]
    assert log(play(case), "p") == ["x:1", "x:2"]


@pytest.mark.parametrize("back", [None, 40.0], ids=["gone for good", "back from its log"])
def test_errata_55_a_dead_sender_blocks_its_receivers(back: float | None) -> None:
    """As printed nobody takes over: later messages wait at its receivers. Atomic policy: it comes back and goes on."""
    deployment = deploy(Scenario(Membership.of({"A": "pq"}), "two-phase", senders=0))
    deployment = Deployment("two-phase", replace(deployment.groups, sources=("x", "y")))
    world = World(deployment, network=Network(), durable=True)
    world.multicast(0.0, "x", ("A",))
    world.crash(Crash("x", 1.5, back))
    world.multicast(5.0, "y", ("A",))
    verdict = judge(world, until=200.0)

    if back is None:
        assert "p does not deliver x:1" == verdict.findings["completeness"]
        assert "waits" in (verdict.findings["held"] or "")
        assert verdict.outcome.delivered == 0
    else:
        assert verdict.ok, verdict.findings
        assert verdict.outcome.delivered == 4
