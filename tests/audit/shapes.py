"""Runs of every shape, from a seed: clean ones and broken ones, with and without stamps, beginning late, going on."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

from tests.audit.naive import Delivered, Run, Sent

Logs = dict[str, list[Delivered]]


def make_run(seed: int) -> Run:
    """Make a run: an execution of independent classes, right or wrong ones, and up to three faults in it."""
    chance = random.Random(seed)
    members = _ring(chance) if chance.random() < 0.15 else _groups(chance)
    sends = _sends(chance, members)
    run = Run({group: set(own) for group, own in members.items()}, sends, [])
    run.level = chance.choice(["fifo", "total", "total", "acyclic", "acyclic", "acyclic", "causal"])
    run.stamped, run.has_epoch = chance.random() < 0.75, chance.random() < 0.8
    run.has_prev, run.context = chance.random() < 0.8, run.level == "causal" or chance.random() < 0.5
    run.bodies, run.sent_bodies = chance.random() < 0.8, chance.random() < 0.8
    logs = _execution(chance, run)
    run.sends = _after(chance, run, logs)
    for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 3])):
        fault = chance.choice(FAULTS)
        if fault(chance, run, logs):
            run.notes.append(fault.__name__)
    if chance.random() < 0.2:
        _go_on(chance, run, logs)
    _place(chance, run, logs)
    if not run.has_epoch:
        run.deliveries = [replace(row, epoch=0) for row in run.deliveries]
    for placed in chance.choices(PLACED_FAULTS, k=chance.choice([0, 0, 0, 1])):
        run.deliveries = placed(chance, run.deliveries)
        run.notes.append(placed.__name__)
    if not run.deliveries:
        return make_run(seed + 1_000_003)
    return run


def _groups(chance: random.Random) -> dict[str, list[str]]:
    sites = [f"s{number}" for number in range(chance.randint(2, 6))]
    many = chance.randint(1, 4)
    return {name: chance.sample(sites, chance.randint(1, min(4, len(sites)))) for name in "ABCD"[:many]}


def _ring(chance: random.Random) -> dict[str, list[str]]:
    many = chance.choice([3, 4, 5, 8])
    return {f"r{number}": [f"s{number}", f"s{(number + 1) % many}"] for number in range(many)}


def _sends(chance: random.Random, members: dict[str, list[str]]) -> list[Sent]:
    sites = sorted({site for own in members.values() for site in own})
    sources = [*chance.sample(sites, min(2, len(sites))), "client"]
    numbers = dict.fromkeys(sources, chance.choice([0, 0, 10]))
    several = chance.choice([0.0, 0.4, 0.8])
    sends = []
    for _ in range(chance.choice([1, 3, 6, 10, 14])):
        many = chance.choice([2, 2, 3]) if chance.random() < several else 1
        groups = frozenset(chance.sample(sorted(members), min(many, len(members))))
        source = chance.choice(sources)
        numbers[source] += chance.choice([1, 1, 1, 3])
        body = chance.choice([7, -(2**63), chance.getrandbits(60)])
        sends.append(Sent(f"{source}:{numbers[source]}", groups, source, numbers[source], body=body))
    return sends


def _labels(chance: random.Random, run: Run) -> dict[frozenset[str], str]:
    """Give each destination a class: one for all, what connects, the class of its first group, or any."""
    destinations = sorted({sent.groups for sent in run.sends}, key=sorted)
    style = chance.choice(["one", "shares two", "shares two", "connected", "first group", "any"])
    label = {groups: min(groups) for groups in destinations}
    if style == "one":
        return dict.fromkeys(destinations, "all")
    if style == "any":
        return {groups: chance.choice("xy") for groups in destinations}
    if style == "first group":
        return label
    for _ in destinations:
        for a in destinations:
            for b in destinations:
                shared = len(run.sites_of(a) & run.sites_of(b))
                if shared > (1 if style == "shares two" else 0):
                    label[a] = label[b] = min(label[a], label[b])
    return label


def _execution(chance: random.Random, run: Run) -> Logs:
    """Let every class put its messages in a sequence; a site merges classes in the order sent, or in any."""
    label = _labels(chance, run)
    merges = chance.random() < 0.5
    sequence: dict[str, list[Sent]] = {}
    for sent in run.sends:
        sequence.setdefault(label[sent.groups], []).append(sent)
    stamp = {
        sent.msg_id: number.to_bytes(chance.choice([2, 2, 2]), "big") + b"\0" * chance.choice([0, 0, 1])
        for own in sequence.values()
        for number, sent in enumerate(own)
    }
    half = chance.choice([len(run.sends), len(run.sends) // 2])
    epoch = {sent.msg_id: 1 + (number >= half) for number, sent in enumerate(run.sends)}
    logs: Logs = {}
    for site in sorted({site for own in run.members.values() for site in own}):
        queues = [[sent for sent in own if site in run.sites_of(sent.groups)] for own in sequence.values()]
        order = [sent for sent in run.sends if site in run.sites_of(sent.groups)]
        if merges:
            order = []
            while any(queues):
                order.append(chance.choice([queue for queue in queues if queue]).pop(0))
        logs[site] = [
            Delivered(
                site,
                0,
                s.msg_id,
                s.groups,
                s.source,
                s.number,
                epoch[s.msg_id],
                label[s.groups],
                stamp[s.msg_id],
                body=s.body,
            )
            for s in order
        ]
    return {site: log for site, log in logs.items() if log or chance.random() < 0.5}


def _after(chance: random.Random, run: Run, logs: Logs) -> list[Sent]:
    """Say how much a source had delivered before each send: what was sent before, or a little wrong."""
    wild = chance.random() < 0.3
    done: list[Sent] = []
    least: dict[str, int] = {}
    for index, sent in enumerate(run.sends):
        earlier = {one.msg_id for one in run.sends[:index]}
        log = [row.msg_id for row in logs.get(sent.source, ())]
        most = next((place for place, msg_id in enumerate(log) if msg_id not in earlier), len(log))
        if wild:
            most = len(log)
        after = max(least.get(sent.source, 0), chance.randint(0, most))
        least[sent.source] = after
        done.append(replace(sent, after=after))
    return done


def _go_on(chance: random.Random, run: Run, logs: Logs) -> None:
    """The run goes on: logs end anywhere, and sends that are not yet written are missing."""
    run.running = True
    for site in logs:
        logs[site] = logs[site][: chance.randint(0, len(logs[site]))] if chance.random() < 0.5 else logs[site]
    for source in {sent.source for sent in run.sends}:
        if chance.random() < 0.5:
            own = sorted(sent.number for sent in run.sends if sent.source == source)
            last = chance.choice(own)
            run.sends = [sent for sent in run.sends if sent.source != source or sent.number < last]


def _place(chance: random.Random, run: Run, logs: Logs) -> None:
    """Number the deliveries, from 0 or later, with or without gaps, and say the previous stamps."""
    begin = chance.choice([0, 0, 0, 0, 5])
    gaps = chance.random() < 0.1
    for log in logs.values():
        at = begin
        last: dict[str, bytes] = {}
        for row in log:
            run.deliveries.append(replace(row, position=at, prev=last.get(row.order_class)))
            last[row.order_class] = row.stamp
            at += chance.choice([1, 1, 3]) if gaps else 1


# Faults, in logs without positions.


def _some(chance: random.Random, logs: Logs, least: int = 1) -> list[Delivered] | None:
    long = [log for _, log in sorted(logs.items()) if len(log) >= least]
    return chance.choice(long) if long else None


def swap(chance: random.Random, run: Run, logs: Logs) -> bool:
    """Two rows change places."""
    log = _some(chance, logs, 2)
    if log is not None:
        a, b = chance.sample(range(len(log)), 2)
        log[a], log[b] = log[b], log[a]
    return log is not None


def turn(chance: random.Random, run: Run, logs: Logs) -> bool:
    """The first row comes last, for some sites: cycles of many."""
    for _, log in sorted(logs.items()):
        if log and chance.random() < 0.7:
            log.append(log.pop(0))
    return True


def lose(chance: random.Random, run: Run, logs: Logs) -> bool:
    log = _some(chance, logs)
    if log is not None:
        log.pop(chance.randrange(len(log)))
    return log is not None


def cut(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A log has lost its beginning or its end."""
    log = _some(chance, logs)
    if log is not None:
        many = chance.randint(1, len(log))
        log[:] = log[many:] if chance.random() < 0.5 else log[: len(log) - many]
    return log is not None


def double(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A row is there twice, beside the others or instead of one."""
    log = _some(chance, logs)
    if log is not None:
        row = chance.choice(log)
        at = chance.randrange(len(log))
        log[at : at + chance.choice([0, 1])] = [row]
    return log is not None


def ghost(chance: random.Random, run: Run, logs: Logs) -> bool:
    """Something that nobody sent; at one site or all that get another message, once or twice, beside it or instead."""
    log = _some(chance, logs)
    if log is None:
        return False
    model = chance.choice(log)
    made = replace(model, msg_id=f"ghost:{chance.randint(1, 3)}", number=model.number + chance.choice([0, 0, 100]))
    for site, own in sorted(logs.items()):
        places = [place for place, row in enumerate(own) if row.msg_id == model.msg_id]
        for place in places[:1] if own is log or chance.random() < 0.5 else []:
            own[place : place + chance.choice([0, 1])] = [replace(made, site=site)] * chance.choice([1, 1, 2])
    return True


def ghost_twice(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A ghost twice instead of two messages that were sent: where sums cancel, only the count is right."""
    log = _some(chance, logs, 2)
    if log is None:
        return False
    made = replace(log[0], msg_id="ghost:9")
    log[:2] = [made, made]
    return True


def stranger(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A site delivers what is not for it."""
    log = _some(chance, logs)
    if log is None:
        return False
    row = chance.choice(log)
    others = [site for site in logs if site not in run.sites_of(row.groups)] or ["elsewhere"]
    for site in chance.sample(others, chance.randint(1, len(others))):
        own = logs.setdefault(site, [])
        groups = own[0].groups if own and chance.random() < 0.4 else row.groups  # perhaps as one of its own
        own.insert(chance.randint(0, len(own)), replace(row, site=site, groups=groups))
    return True


def strange_pair(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A stranger delivers two messages of different classes in another order than a member: only its log tells."""
    log = _some(chance, logs, 2)
    if log is None:
        return False
    pairs = list(combinations(log, 2))
    apart = [(a, b) for a, b in pairs if a.order_class != b.order_class] or pairs
    own = logs.setdefault("elsewhere", [])
    own.extend(replace(row, site="elsewhere") for row in chance.choice(apart)[::-1])
    return True


def lose_and_forge(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A site has lost a message and tells another stamp, class or epoch of another: sums differ anyway."""
    log = _some(chance, logs, 2)
    if log is None:
        return False
    log.pop(chance.randrange(len(log)))
    at = chance.randrange(len(log))
    wrong: dict[str, Any] = chance.choice([{"stamp": log[at].stamp + b"\1"}, {"order_class": "other"}, {"epoch": 2}])
    log[at] = replace(log[at], **wrong)
    return True


def disguise(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A message goes by the destination and class of another, somewhere else in the log: stamps may even hold."""
    log = _some(chance, logs, 2)
    if log is None:
        return False
    row = log.pop(chance.randrange(len(log)))
    other = chance.choice(log)
    log.insert(chance.randint(0, len(log)), replace(row, groups=other.groups, order_class=other.order_class))
    return True


def mislabel(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A row says another group, source or number than was sent."""
    log = _some(chance, logs)
    if log is None:
        return False
    at = chance.randrange(len(log))
    wrong: dict[str, Any] = chance.choice(
        [{"groups": frozenset(chance.sample(sorted(run.members), 1))}, {"source": "nobody"}, {"number": 77}]
    )
    log[at] = replace(log[at], **wrong)
    return True


def unsend(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A send was never written; or none was."""
    if chance.random() < 0.1:
        run.sends.clear()
    elif run.sends:
        run.sends.remove(chance.choice(run.sends))
    return True


def send_twice(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A send row is there twice, and perhaps every delivery too."""
    if not run.sends:
        return False
    sent = chance.choice(run.sends)
    run.sends.append(sent)
    if chance.random() < 0.7:
        for log in logs.values():
            for place in [place for place, row in enumerate(log) if row.msg_id == sent.msg_id][:1]:
                log.insert(chance.randint(place, len(log)), log[place])
    return True


def one_id_for_two(chance: random.Random, run: Run, logs: Logs) -> bool:
    """Two messages have one id."""
    if len(run.sends) < 2:
        return False
    one, other = chance.sample(range(len(run.sends)), 2)
    old, new = run.sends[one].msg_id, run.sends[other].msg_id
    run.sends[one] = replace(run.sends[one], msg_id=new)
    for log in logs.values():
        log[:] = [replace(row, msg_id=new) if row.msg_id == old else row for row in log]
    return True


def epoch(chance: random.Random, run: Run, logs: Logs) -> bool:
    log = _some(chance, logs)
    if log is not None:
        at = chance.randrange(len(log))
        log[at] = replace(log[at], epoch=chance.choice([0, 1, 2, 3]))
    return log is not None


def stamp(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A stamp is another at one site, or at all."""
    log = _some(chance, logs)
    if log is None:
        return False
    row = chance.choice(log)
    made = chance.choice([row.stamp + b"\1", b"\xff", b""])
    for own in [log] if chance.random() < 0.6 else logs.values():
        own[:] = [replace(r, stamp=made) if r.msg_id == row.msg_id else r for r in own]
    return True


def other_body(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A message has another body at one site, or at all; or bodies of two messages change places."""
    log = _some(chance, logs)
    if log is None:
        return False
    row, other = chance.choice(log), chance.choice(log)
    made = {row.msg_id: chance.getrandbits(60)}
    if chance.random() < 0.3:
        made = {row.msg_id: other.body, other.msg_id: row.body}
    for own in [log] if chance.random() < 0.6 else logs.values():
        own[:] = [replace(r, body=made.get(r.msg_id, r.body)) for r in own]
    return True


def relabel(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A class has another name in one row, or for one destination."""
    log = _some(chance, logs)
    if log is None:
        return False
    row = chance.choice(log)
    everywhere = chance.random() < 0.5
    for own in logs.values():
        for place, one in enumerate(own):
            if one is row or (everywhere and one.groups == row.groups):
                own[place] = replace(one, order_class="other")
    return True


def late_after(chance: random.Random, run: Run, logs: Logs) -> bool:
    """A source says that it had delivered more than it could."""
    if run.sends:
        at = chance.randrange(len(run.sends))
        run.sends[at] = replace(run.sends[at], after=run.sends[at].after + chance.randint(1, 9))
    return True


FAULTS: list[Callable[[random.Random, Run, Logs], bool]] = [
    swap, swap, turn, lose, lose, lose_and_forge, cut, double, ghost, ghost_twice, stranger, strange_pair, mislabel,
    disguise, unsend, send_twice, one_id_for_two, epoch, stamp, other_body, other_body,
    relabel, late_after,
]  # fmt: skip


# Faults that need positions.


def no_previous(chance: random.Random, rows: list[Delivered]) -> list[Delivered]:
    """A previous stamp is null, as after a restart."""
    if rows:
        at = chance.randrange(len(rows))
        rows[at] = replace(rows[at], prev=None)
    return rows


def no_previous_at_all(chance: random.Random, rows: list[Delivered]) -> list[Delivered]:
    return [replace(row, prev=None) for row in rows]


def other_previous(chance: random.Random, rows: list[Delivered]) -> list[Delivered]:
    if rows:
        at = chance.randrange(len(rows))
        rows[at] = replace(rows[at], prev=chance.choice([b"\0\0", b"\x77"]))
    return rows


def twice_in_place(chance: random.Random, rows: list[Delivered]) -> list[Delivered]:
    """A row is in two files."""
    return [*rows, chance.choice(rows)] if rows else rows


PLACED_FAULTS = [no_previous, no_previous, no_previous_at_all, other_previous, twice_in_place]
