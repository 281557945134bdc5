"""Tokens, rights and the brake, without sockets or clocks."""

import hmac

import pytest

from ordercast.errors import LocalError
from ordercast.live.doorman import ADDRESSES, BRAKE_AT_MOST_S, FORGIVEN_S, Brake, Doorman


def test_every_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, security: how long it takes tells nothing, neither how much of a token was right nor whose it was."""
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return hmac_compare(one, other)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr("ordercast.live.doorman.hmac.compare_digest", compare)
    door = Doorman({"first": "ann", "second": "bob", "drïtte": "eve"}, {}, {})
    for token, name in (
        ("first", "ann"),
        ("drïtte", "eve"),
        ("wrong", None),
        (None, None),
        ("", None),
        ("\ud800", None),
    ):
        compared.clear()
        assert door.who(token) == name
        assert len(compared) == 3


def test_without_tokens_everybody_is_anyone() -> None:
    assert Doorman({}, {}, {}).who(None) == Doorman({}, {}, {}).who("any") == "anyone"


def test_where_there_is_a_rule_the_rest_is_forbidden() -> None:
    """Issue 12, security: a cluster with rules for sending only let everybody read everything."""
    free = Doorman({"t": "ann"}, {}, {})
    free.check("ann", "send", ["a"])
    free.check("ann", "receive", ["a", "b"])
    ruled = Doorman({"t": "ann", "u": "bob"}, {"ann": ["a"]}, {})
    ruled.check("ann", "send", ["a"])
    for name, right, groups in (("ann", "send", ["a", "b"]), ("bob", "send", ["a"]), ("ann", "receive", ["a"])):
        with pytest.raises(LocalError, match=f"client {name} may not {right} in group"):
            ruled.check(name, right, groups)  # type: ignore[arg-type]


def test_each_wrong_token_of_an_address_waits_longer_up_to_a_bound() -> None:
    brake = Brake()
    waits = [brake.wrong("10.0.0.1", now) for now in range(10)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8] and waits[-1] == BRAKE_AT_MOST_S
    assert brake.wrong("10.0.0.2", 10) == 0.1
    assert brake.wrong("10.0.0.1", 10 + FORGIVEN_S) == 0.1


def test_the_brake_remembers_so_many_addresses() -> None:
    brake = Brake()
    for number in range(5 * ADDRESSES):
        brake.wrong(f"10.0.{number}", 0.0)
    assert len(brake._wrong) == ADDRESSES
    assert brake.wrong(f"10.0.{5 * ADDRESSES - 1}", 0.0) == 0.2
