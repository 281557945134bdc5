"""What `ordercast tail` prints of a stream: a line, or JSON, for each event."""

import base64
from typing import Any

import msgspec

from ordercast.client.values import Delivered, Event, Gap, RolledBack, ViewChanged
from ordercast.show.terminal import shown


def as_line(event: Event) -> str:
    """Return a message, or what a site says beside messages, as a line."""
    match event:
        case Delivered(position, group, source, number, body):
            text = shown(body.decode("utf-8", "replace"))
            return f"{position:6} {shown(group):16} {f'{source}:{number}':16} {text}"
        case ViewChanged(group, members, joined, left, epoch, away):
            changed = [f"+{site}" for site in joined] + [f"-{site}" for site in left]
            told = f"members {','.join(members)} ({' '.join(changed)}) since configuration {epoch}"
            gone = f", away {','.join(away)}" if away else ""
            return f"{event.position:6} {shown(group):16} {'view':16} {told}{gone}"
        case RolledBack(positions):
            return f"{event.position:6} {'':16} {'rolled back':16} positions {positions[0]} to {positions[-1]}"
        case Gap(first, last):
            return f"{event.position:6} {'':16} {'gap':16} positions {first} to {last}"
    gap = ", what was there before is void" if event.gap else ""
    return f"{event.position:6} {shown(event.group):16} {'state':16} {len(event.state)} bytes{gap}"


def as_json_event(event: Event) -> dict[str, Any]:
    """Return a message, its body as text if it is text, in base64 otherwise; or what a site says beside messages."""
    told: dict[str, Any] = {"position": event.position}
    match event:
        case Delivered(_, group, source, number, body):
            told |= {"group": group, "message": f"{source}:{number}"}
            return told | _bytes("body", body)
        case ViewChanged():
            return told | {"event": "view"} | msgspec.structs.asdict(event)
        case RolledBack(positions):
            return told | {"event": "rolled_back", "positions": positions}
        case Gap(first, last):
            return told | {"event": "gap", "first": first, "last": last}
    return told | {"event": "state", "group": event.group, "gap": event.gap} | _bytes("state", event.state)


def _bytes(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
