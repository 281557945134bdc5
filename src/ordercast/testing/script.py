"""Conversations as text files: commands, a line `----`, what happened; `#` lines tell the story.

A file is a list of steps separated by blank lines. `run_file` returns the file as it should read; a test compares,
`make record` rewrites. Commands at this stage:

    plan PLANNER [classes=s1] [prefer=d,c] alpha=a,b,c beta=c,d    plan a membership
    tree b->a b->f a->c                                            draw the trees of the same membership by hand
    reroute GROUP a->b b->c                                        send one group another way
    judge                                                          ask the judge
    deploy PROTOCOL [causal] [alone] [direct] [classes=s2] alpha=a,b x y    machines, and sources in no group;
                                                                   over the plan there is, or one of its own
    multicast x alpha [beta]                                       an application sends
    carry x->c c->d                                                the next message of each link arrives (`all`)
    drop x->c                                                      the next message of a link is lost
    last x->c                                                      the last message of a link arrives first
    double x->c                                                    the next message of a link arrives, and stays
    break x->c                                                     a link breaks and is mended: what is on it is lost
    tick                                                           time passes at every site
    held                                                           what waits, and why
    cluster PROTOCOL alpha=a,b                                     from here on groups change (`testing.story`)
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ordercast.core.effects import Append, Deliver, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.errors import OrdercastError
from ordercast.membership.table import Membership
from ordercast.names import ClassId, ClassRule, Level, Planner
from ordercast.planning.classes import class_labels, classes
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.plan import Edge, Plan
from ordercast.planning.planners import FIXED
from ordercast.planning.propagation_graph import literal_greedy
from ordercast.protocols.registry import MACHINES, Causal, Deployment
from ordercast.sim.scenario import Scenario, deploy
from ordercast.testing.story import Story
from ordercast.verify.plans import judge


def run_file(path: Path) -> str:
    """Run every step of a file and return the file with what really happened."""
    script = Script()
    return "\n\n".join(_run_step(script, step) for step in path.read_text("utf-8").strip().split("\n\n")) + "\n"


def _run_step(script: "Script", step: str) -> str:
    asked = step.split("\n----", maxsplit=1)[0].rstrip()
    commands = [line for line in asked.split("\n") if line and not line.startswith("#")]
    if not commands:
        return asked
    said: list[str] = []
    for command in commands:
        try:
            said += script.run(command)
        except OrdercastError as error:
            said.append(f"error: {error}")
    return "\n".join([asked, "----", *said])


class Script:
    """One conversation: the membership and the plan under discussion."""

    def __init__(self) -> None:
        self.membership = Membership.of({"none": ["nowhere"]})
        self.rule = ClassRule.S1
        self.plan: Plan | None = None
        self.machines: dict[str, Machines] = {}
        self.story: Story | None = None
        self.links: dict[tuple[str, str], list[tuple[Message, ClassId]]] = defaultdict(list)
        self.now = 0.0

    def run(self, line: str) -> Iterator[str]:
        """Run one command and yield what it has to say."""
        verb, *words = line.split()
        if verb == "cluster":
            self.story = Story(words)
            return iter(self.story.opened())
        if self.story is not None:
            return iter(self.story.run(line))
        match verb:
            case "classes":
                return self._classes(words)
            case "plan":
                return self._plan(words)
            case "tree":
                return self._tree(words)
            case "reroute":
                return self._reroute(words)
            case "judge":
                return self._judge()
            case "deploy":
                return self._deploy(words)
            case "multicast":
                return self._feed(words[0], Multicast(tuple(words[1:]), b"x"))
            case "carry":
                return self._carry_all() if words == ["all"] else self._carry(words)
            case "drop" | "last" | "double":
                return self._misbehave(verb, words)
            case "break":
                return self._break(words)
            case "tick":
                return self._tick()
            case "held":
                return self._held()
            case _:
                raise OrdercastError(f"unknown command {verb!r}")

    def _read(self, words: list[str]) -> dict[str, str]:
        given = dict(word.split("=", 1) for word in words)
        options: dict[str, str] = {name: given.pop(name) for name in ("classes", "prefer") if name in given}
        if given:
            self.membership = Membership.of({group: members.split(",") for group, members in given.items()})
        self.rule = ClassRule(options.pop("classes", ClassRule.S1))
        return options

    def _classes(self, words: list[str]) -> Iterator[str]:
        self._read(words)
        for rule in ClassRule:
            yield f"{rule}: " + " | ".join(" ".join(groups) for groups in classes(self.membership, rule))

    def _plan(self, words: list[str]) -> Iterator[str]:
        planner = Planner(words[0])
        options = self._read(words[1:])
        graph = ClassGraph.of(self.membership, class_labels(self.membership, self.rule))
        prefer = options.get("prefer", "").split(",")
        forest = literal_greedy(graph, prefer=prefer) if planner is Planner.GREEDY else FIXED[planner](graph)
        return self._show(forest.plan(planner, Level.ACYCLIC))

    def _tree(self, words: list[str]) -> Iterator[str]:
        graph = ClassGraph.of(self.membership, class_labels(self.membership, ClassRule.S1))
        node = {graph.names(index): index for index in range(len(graph.node_site))}
        parent = np.full(len(node), -1, np.int32)
        for above, below in (word.split("->") for word in words):
            parent[node[below]] = node[above]
        return self._show(Forest.of(graph, parent).plan("by hand", Level.ACYCLIC))

    def _reroute(self, words: list[str]) -> Iterator[str]:
        assert self.plan is not None
        group, *ways = words
        carried: dict[tuple[str, str], list[str]] = {
            (edge.parent, edge.child): [other for other in edge.groups if other != group] for edge in self.plan.edges
        }
        for way in ways:
            parent, child = way.split("->")
            carried.setdefault((parent, child), []).append(group)
        edges = [Edge(*ends, sorted(groups)) for ends, groups in sorted(carried.items()) if groups]
        return self._show(msgspec.structs.replace(self.plan, edges=edges), told=False)

    def _show(self, plan: Plan, told: bool = True) -> Iterator[str]:
        self.plan = plan
        children: dict[str, list[Edge]] = defaultdict(list)
        for edge in plan.edges:
            children[edge.parent].append(edge)
        for site, edges in sorted(children.items()):
            yield f"{site} -> " + " ".join(edge.child for edge in edges)
        yield "primary " + " ".join(f"{group}={route.entry}" for group, route in plan.groups.items())
        for group, route in plan.groups.items():
            if route.extra and told:
                yield f"extra nodes of {group}: {' '.join(route.extra)}"
        if told:
            cost = plan.cost
            costs = (cost.mean_depth, cost.mean_extra, cost.max_load, cost.messages)
            yield "depth {:.3f} extra {:.3f} load {} messages {}".format(*costs)

    def _deploy(self, words: list[str]) -> Iterator[str]:
        protocol, *rest = words
        outsiders = [word for word in rest if "=" not in word and word not in ("causal", "alone", "direct")]
        self._read([word for word in rest if "=" in word])
        causal = "causal" in rest
        alone = "alone" in rest
        one_part = causal and protocol in MACHINES and MACHINES[protocol].causal is Causal.ONE_PART
        scenario = Scenario(
            self.membership,
            protocol,
            class_rule=None if one_part else self.rule,
            causal=causal,
            groups_alone=alone,
            direct_bytes=int("direct" in rest),
            senders=0,
            plan=self.plan,
        )
        deployment = deploy(scenario)
        sources = tuple(sorted({*outsiders, *self.membership.sites}))
        deployment = msgspec.structs.replace(
            deployment, groups=msgspec.structs.replace(deployment.groups, sources=sources)
        )
        self.machines = {site: deployment.machines(site) for site in sorted({*deployment.sites, *sources})}
        self.links.clear()
        yield f"{protocol} at {' '.join(self.machines)}"
        yield from self._sequencers(deployment)

    def _sequencers(self, deployment: Deployment) -> Iterator[str]:
        if deployment.kind.sequencers:
            for class_id, parts in deployment.groups.classes.items():
                for site, groups in zip(deployment.sequencers(class_id), parts, strict=True):
                    yield f"{site} sequences {' '.join(groups)}"

    def _feed(self, site: str, event: Event) -> Iterator[str]:
        for effect in self.machines[site].step(event):
            match effect:
                case Send(to, message, class_id):
                    self.links[site, to].append((message, class_id))
                    yield f"{site} -> {to}  {message}"
                case Deliver(envelope, _):
                    yield f"{site} delivers {envelope.msg_id}"
                case Refuse(peer, reason):
                    yield f"{site} refuses {peer}: {reason}"
                case Append() | Placed() | Safe():
                    pass
                case _:
                    raise TypeError(f"no such effect: {effect!r}")

    def _carry(self, links: list[str]) -> Iterator[str]:
        for link in links:
            sender, receiver = link.split("->")
            yield from self._feed(receiver, Received(sender, *self.links[sender, receiver].pop(0)))

    def _carry_all(self) -> Iterator[str]:
        while busy := sorted(link for link, messages in self.links.items() if messages):
            yield from self._carry(["->".join(busy[0])])

    def _misbehave(self, verb: str, links: list[str]) -> Iterator[str]:
        for link in links:
            sender, receiver = link.split("->")
            messages = self.links[sender, receiver]
            if verb == "drop":
                yield f"lost: {sender} -> {receiver}  {messages.pop(0)[0]}"
            elif verb == "last":
                yield from self._feed(receiver, Received(sender, *messages.pop()))
            else:
                yield from self._feed(receiver, Received(sender, *messages[0]))

    def _break(self, links: list[str]) -> Iterator[str]:
        for link in links:
            ends = tuple(link.split("->"))
            for one, other in (ends, ends[::-1]):
                yield from (f"lost: {one} -> {other}  {message}" for message, _ in self.links[one, other])
                self.links[one, other].clear()
            for one, other in (ends, ends[::-1]):
                yield from self._feed(one, LinkDown(other))
                yield from self._feed(one, LinkUp(other))

    def _held(self) -> Iterator[str]:
        held = [f"{site}: {waiting}" for site, machine in self.machines.items() for waiting in machine.held()]
        yield from held or ["nothing"]

    def _tick(self) -> Iterator[str]:
        self.now += 1.0
        for site in self.machines:
            yield from self._feed(site, Tick(self.now))

    def _judge(self) -> Iterator[str]:
        assert self.plan is not None
        for name, found in judge(self.plan).findings.items():
            if name != "cost":
                yield f"{name}: {'yes' if found.ok else 'no: ' + found.says}"
