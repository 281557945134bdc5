"""What the sites of a world would export where groups change, and the verdict on it (`verify.histories`)."""

import random
from collections.abc import Iterator

from ordercast.client.values import Restored, RolledBack, ViewChanged
from ordercast.names import GroupId
from ordercast.node import inputs as io
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Delivery, Sent
from ordercast.verify.histories import Change, Histories, Log
from ordercast.verify.record import Record
from ordercast.verify.window import Window
from ordercast.verify.window_state import restore, snapshot
from ordercast.wire import batch

Told = Delivery | Change
LIVES = 0.1


class Exports:
    """All logs. What a site tells again after a restart must be what it has told before."""

    def __init__(self) -> None:
        self.told: dict[str, dict[int, Told]] = {}
        self.begins: dict[str, frozenset[GroupId]] = {}
        self.sends: dict[str, Sent] = {}
        self.posts: dict[str, str] = {}
        self.dropped: set[str] = set()
        self.problems: list[tuple[str, str]] = []

    def began(self, log: str, began: io.Began) -> None:
        """A life of a site takes part."""
        self.begins.setdefault(log, frozenset())
        for group, sites in began.members.items():
            for site in sites:
                self.begins[site] = self.begins.get(site, frozenset()) | {group}

    def sent(self, log: str, sent: io.Sent) -> None:
        """A site has sent a batch."""
        origin = batch.origin_of(sent.body)
        for index, body in enumerate(batch.unpack(sent.body)):
            number = sent.first + index
            self.sends[f"{log}:{number}"] = Sent(sent.groups, log, number, sent.after, body)
            if origin is not None:
                self.posts[f"{log}:{number}"] = f"{origin[0].hex()}.{'+'.join(sent.groups)}.{origin[1]}.{index}"

    def delivered(self, log: str, source: str, done: io.Delivered) -> None:
        """A site has delivered a batch."""
        lot = done.lot
        for index, body in enumerate(batch.unpack(lot.body)):
            stamp, number = lot.stamp + index.to_bytes(4, "big"), lot.first + index
            self._tell(log, Delivery(log, lot.position + index, f"{source}:{number}", lot.groups, source, number,
                                     done.class_id.epoch, done.order, stamp, None, body))  # fmt: skip

    def noted(self, log: str, noted: io.Noted) -> None:
        """A site says something in its stream."""
        match noted.said:
            case ViewChanged(group, members, joined, left, _, away):
                self._tell(log, Change(noted.position, "view", group, noted.epoch, members, joined, left, away))
            case Restored(group):
                self._tell(log, Change(noted.position, "state", group, noted.epoch))
            case RolledBack(positions):
                first = min(positions, default=noted.position)
                self._tell(log, Change(noted.position, "undone", undone_from=first))

    def not_sent(self, log: str, dropped: io.Dropped) -> None:
        """A site will not send a batch that it has taken."""
        if dropped.first:
            self.dropped.update(f"{log}:{dropped.first + index}" for index in range(len(dropped.bodies)))

    def _tell(self, log: str, told: Told) -> None:
        before = self.told.setdefault(log, {}).setdefault(told.position, told)
        if before != told:
            self.problems.append(("export", f"{log} tells {told} after {before}, at one position"))

    def histories(self) -> Histories:
        """Return everything as the judge takes it."""
        logs = {}
        for name in {*self.told, *self.begins}:
            told = self.told.get(name, {}).values()
            rows = [row for row in told if isinstance(row, Delivery)]
            changes = [change for change in told if isinstance(change, Change)]
            logs[name] = Log(rows, changes, self.begins.get(name, frozenset()))
        return Histories(logs, self.sends, self.posts, frozenset(self.dropped))

    def findings(self, promises: frozenset[str], seed: int = 0) -> Iterator[tuple[str, str]]:
        """Yield what an audit would find, and one that follows the logs as they are written."""
        yield from self.problems
        run = self.histories()
        for finding in run.judge():
            yield f"audit {finding.property}", finding.says
        record = Record({}, self.sends, {name: [row.msg_id for row in rows] for name, rows in run.kept().items()})
        for name in ("total", "acyclic"):
            found = JUDGES[name](record) if name in promises else None
            if found is not None:
                yield f"audit {name}", found.says
        window = followed(run, random.Random(f"followed {seed}"), promises)
        yield from ((f"follow {name}", finding.says) for name, finding in window.broken.items())


def followed(
    run: Histories, chance: random.Random, promises: frozenset[str], waited_for: int = 100_000, *, lives: bool = True
) -> Window:
    """Judge a run as files come: each log in order, piece by piece, and the logs in any order.

    `lives`: the judge is started again now and then, and goes on from what it has kept.
    """
    window = Window(promises, waited_for)
    founded: dict[GroupId, list[str]] = {}
    logs: dict[str, list[Told]] = {}
    sends: dict[str, list[tuple[str, Sent]]] = {}
    for name, log in sorted(run.logs.items()):
        told: list[Told] = [*log.rows, *log.changes]
        logs[name] = sorted(told, key=lambda said: said.position)
        for group in sorted(log.begins):
            founded.setdefault(group, []).append(name)
    for message, sent in sorted(run.sends.items(), key=lambda item: item[1].number):
        sends.setdefault(sent.source, []).append((message, sent))
    window.founded(founded)
    often = chance.choice([0.03, 0.3, 1.0])
    while logs or sends:
        many = chance.choice([1, 5, 30])
        if (name := chance.choice(sorted({*logs, *(f"sends of {source}" for source in sends)}))) in logs:
            window.began(name)
            for said in logs[name][:many]:
                if isinstance(said, Delivery):
                    window.delivered(said)
                else:
                    window.changed(name, said)
            logs[name] = logs[name][many:]
            logs = {name: rest for name, rest in logs.items() if rest}
        else:
            now = sends[source := name.removeprefix("sends of ")][:many]
            for message, sent in now:
                window.sent(message, sent, run.posts.get(message, ""))
            window.written(source, now[0][1].number, now[-1][1].number)
            sends[source] = sends[source][many:]
            sends = {source: rest for source, rest in sends.items() if rest}
        if chance.random() < often:
            window.judge()
        if lives and chance.random() < LIVES:
            before, window = snapshot(window), Window(promises, waited_for)
            restore(window, before)
            window.founded(founded)
    for name in run.logs:
        window.began(name)
    window.judge()
    return window
