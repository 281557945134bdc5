"""What a history was written for, in words: so that a changed configuration can say what differs."""

from typing import Any

import msgspec


def differences(then: bytes, today: bytes) -> str:
    """Return what differs between two descriptions of a cluster (JSON), in words; the first few."""
    before: dict[str, Any] = msgspec.json.decode(then)
    now: dict[str, Any] = msgspec.json.decode(today)
    found = [
        f"{name} was {before[name]}, now it is {now[name]}"
        for name in ("policy", "protocol", "level", "causal", "planner", "max_load", "unions")
        if name in before and before[name] != now[name]
    ]
    was, are = before.get("groups", {}), now["groups"]
    found += [f"group {group} is new" for group in are if group not in was]
    found += [f"group {group} is gone" for group in was if group not in are]
    for group in are:
        if group in was and was[group] != are[group]:
            moves = [f"{site} came" for site in are[group] if site not in was[group]]
            moves += [f"{site} went" for site in was[group] if site not in are[group]]
            found.append(f"group {group} has other members: {', '.join(moves)}")
    if not found and before.get("sites") != now["sites"]:
        found.append("there are other sites")
    more = f", and {len(found) - 5} more" if len(found) > 5 else ""
    return ("; ".join(found[:5]) or "the plan is another one") + more
