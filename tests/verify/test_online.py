"""The judges while a run goes on, against the judges of the whole record: both must say the same."""

import os
import random

import pytest

from ordercast.verify.deliveries import ALWAYS, JUDGES
from ordercast.verify.findings import Sent
from ordercast.verify.online import Watch
from ordercast.verify.record import Record
from tests.verify.test_deliveries import random_record

PROMISES = frozenset({"fifo", "total", "acyclic", "causal"})


def replayed(seed: int) -> tuple[Record, Watch]:
    """Let a random record happen in a random order; sends note what their source had delivered by then."""
    chance = random.Random(seed)
    planned = random_record(seed)
    watch = Watch(planned.members, PROMISES)
    logs: dict[str, list[str]] = {site: [] for site in planned.logs}
    stamps: dict[str, list[tuple[int, bytes]]] = {site: [] for site in planned.logs}
    sends: dict[str, Sent] = {}
    unsent = {s: sorted((m for m in planned.sends if m[0] == s), key=lambda m: planned.sends[m].number) for s in "pqx"}
    place = {}
    for number, message in enumerate(planned.sends):
        place[message] = bytes([chance.randrange(3) if chance.random() < 0.1 else 9, number])
    while True:
        ready = [s for s, log in planned.logs.items() if len(logs[s]) < len(log) and log[len(logs[s])] in sends]
        may_send = [source for source, messages in unsent.items() if messages]
        if not ready and not may_send:
            return Record(planned.members, sends, logs, stamps), watch
        if may_send and (not ready or chance.random() < 0.3):
            source = chance.choice(may_send)
            message = unsent[source].pop(0)
            sent = planned.sends[message]
            sends[message] = Sent(sent.groups, source, sent.number, len(logs.get(source, [])))
            watch.sent(source, sent.number, sent.groups)
        else:
            site = chance.choice(ready)
            message = planned.logs[site][len(logs[site])]
            logs[site].append(message)
            stamps[site].append((0, place[message]))
            watch.delivered(site, sends[message].source, sends[message].number, 0, place[message])


@pytest.mark.slow
def test_they_agree_with_the_judges_of_the_whole_record() -> None:
    seen = dict.fromkeys((*ALWAYS, *PROMISES), 0)
    for seed in range(20_000 if "ORDERCAST_CAMPAIGN" in os.environ else 8_000):
        record, watch = replayed(seed)
        expected = {name: JUDGES[name](record) is None for name in seen}
        found = watch.findings()
        actual = {name: found[name] is None for name in seen}
        for name, kept in expected.items():
            seen[name] += not kept
        if expected["creation"] and expected["duplicate"]:
            assert expected == actual, (seed, record, found)
        else:  # a message delivered where or when it should not be: that is said, and nothing is counted after it
            assert not (actual["creation"] and actual["duplicate"]), (seed, record, found)
    assert min(seen.values()) > 100, seen


def test_memory_is_bounded_by_what_is_under_way() -> None:
    watch = Watch({"A": "pq", "B": "qr"}, PROMISES)
    for number in range(1, 2000):
        watch.sent("x", number, ("A",) if number % 2 else ("B",))
        for site in "pq" if number % 2 else "qr":
            watch.delivered(site, "x", number, 0, number.to_bytes(2, "big"))

        assert not watch.remains().sends
    assert set(watch.findings().values()) == {None}


def test_one_message_has_one_stamp() -> None:
    watch = Watch({"A": "pq"}, frozenset())
    watch.sent("x", 1, ("A",))
    watch.delivered("p", "x", 1, 0, b"1")
    watch.delivered("q", "x", 1, 0, b"2")

    assert str(watch.findings()["stamps"]) == "q delivers x:1 with another stamp than p"


def test_a_message_has_the_body_that_was_sent() -> None:
    watch = Watch({"A": "pq"}, frozenset())
    watch.sent("x", 1, ("A",), b"old")
    watch.delivered("p", "x", 1, 0, b"1", b"old")
    watch.delivered("q", "x", 1, 0, b"1", b"new")
    found = watch.findings()

    assert str(found.pop("body")) == "q delivers x:1 with another body than was sent"
    assert set(found.values()) == {None}
