"""Who may come in, and what each may do: tokens, rights, and a brake on wrong tokens. No sockets, no clock."""

import hmac
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Literal

from ordercast.errors import LocalError, bounded
from ordercast.names import GroupId

ANYONE = "anyone"
"""The name of clients where no tokens are given out."""
BRAKE_S, BRAKE_AT_MOST_S = 0.1, 4.0
FORGIVEN_S = 60.0  # without a wrong token
ADDRESSES = 1024


class Doorman:
    """Knows the tokens and the rules. Where there is any rule, what no rule allows is forbidden."""

    def __init__(
        self,
        tokens: Mapping[str, str],
        send: Mapping[str, Iterable[GroupId]],
        receive: Mapping[str, Iterable[GroupId]],
        admin: Iterable[str] = (),
    ) -> None:
        self._tokens = [(token.encode(), name) for token, name in tokens.items()]
        self._admins = frozenset(admin)
        self._rules = bool(send or receive or self._admins)
        self._may = {
            "send": {name: frozenset(groups) for name, groups in send.items()},
            "receive": {name: frozenset(groups) for name, groups in receive.items()},
        }

    def who(self, token: str | None) -> str | None:
        """Return the client a token is for, None when it is nobody's; takes as long for every token."""
        if not self._tokens:
            return ANYONE
        given, found = (token or "").encode("utf-8", "surrogatepass"), None
        for known, name in self._tokens:
            if hmac.compare_digest(known, given):
                found = name
        return found

    def check(self, name: str, right: Literal["send", "receive"], groups: Iterable[GroupId]) -> None:
        """Raise LocalError unless the client may do this in all of these groups."""
        if not self._rules:
            return
        allowed = self._may[right].get(name, frozenset())
        for group in groups:
            if group not in allowed:
                raise LocalError(f"client {name} may not {right} in group {bounded(group)}")

    def check_admin(self, name: str) -> None:
        """Raise LocalError unless the client may change groups and sites."""
        if self._rules and name not in self._admins:
            raise LocalError(f"client {name} may not change groups and sites")

    def check_look(self, name: str) -> None:
        """Raise LocalError unless the client may see what goes on: who has any right may."""
        if self._rules and name not in self._admins and not any(name in rights for rights in self._may.values()):
            raise LocalError(f"client {name} has no right here, not even to look")


class Brake:
    """Makes wrong tokens slow: each from the same address waits twice as long. Right ones never wait."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wrong(self, address: str, now: float) -> float:
        """Note a wrong token; return how many seconds its answer waits."""
        times, last = self._wrong.pop(address, (0, now))
        if now - last > FORGIVEN_S:
            times = 0
        self._wrong[address] = (times + 1, now)
        if len(self._wrong) > ADDRESSES:  # bounded: the one that was wrong longest ago is forgotten
            self._wrong.popitem(last=False)
        return min(BRAKE_S * float(1 << min(times, 16)), BRAKE_AT_MOST_S)
