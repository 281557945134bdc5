"""Stamps leave room: a live site puts a batch into one envelope and counts its messages behind the stamp."""

from itertools import pairwise

import pytest

from ordercast.sim.scenario import run
from tests.support.campaign import KINDS, Kind, scenario

LAST_OF_A_BATCH = (2**31 - 1).to_bytes(4, "big")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0] + ("-causal" if kind[1] else ""))
def test_what_follows_a_batch_has_a_larger_stamp_than_all_of_it(kind: Kind) -> None:
    """The audit of a live run compares stamps of messages, not of envelopes; in a tree a stamp may go on with more."""
    for seed in range(5):
        record = run(scenario(kind, "calm", seed)).record
        assert record.stamps is not None
        for log in record.stamps.values():
            for order_class in {order_class for order_class, _ in log}:
                stamps = [stamp for of, stamp in log if of == order_class]
                assert [] == [(a, b) for a, b in pairwise(stamps) if a + LAST_OF_A_BATCH >= b]
