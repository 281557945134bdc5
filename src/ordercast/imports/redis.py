"""What readers of Redis record: `redis-cli --json` with XRANGE, XREAD or SUBSCRIBE, or JSON lines of their own."""

import re
from collections.abc import Iterator
from typing import Any

from ordercast.imports.rows import Row, RowError, decoded, pairs

MESSAGES = {"message": 3, "smessage": 3, "pmessage": 4}
OTHERS = ("subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "pong")
GREETING = b"Reading messages..."  # redis-cli says so before the first one
SEQUENCE_BITS = 20  # of an entry's number; more entries than that in a millisecond there are not
_ID = re.compile(r"(\d{1,13})-(\d{1,7})")


def read(line: bytes) -> Iterator[Row]:
    """Read a line: entries of streams have stream, id, number and fields; messages of channels channel and data."""
    if line.startswith(GREETING):
        return
    told = decoded(line)
    if isinstance(told, dict):
        yield from _streams(told) if _is_answer(told) else (_own(told),)
    elif isinstance(told, list) and told and isinstance(told[0], str):
        yield from _pushed(told)
    elif isinstance(told, list) and all(map(_is_pair, told)):
        for name, value in told:
            if _ID.fullmatch(name):
                yield _entry(name, value)
            else:
                yield from _streams({name: value})
    elif told is not None:  # XREAD says null when nothing came in time
        raise RowError("neither an answer of XRANGE, XREAD or SUBSCRIBE nor an object")


def _is_answer(told: Row) -> bool:
    """Whether this is what XREAD answers: streams, and a list of entries each."""
    return bool(told) and all(isinstance(value, list) and all(map(_is_pair, value)) for value in told.values())


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _streams(told: Row) -> Iterator[Row]:
    for stream, entries in told.items():
        if not isinstance(entries, list) or not all(map(_is_pair, entries)):
            raise RowError(f"stream {stream[:40]!r} is not followed by a list of entries")
        for name, fields in entries:
            yield {"stream": stream, **_entry(name, fields)}


def _entry(name: str, fields: Any) -> Row:
    """Return an entry; its number grows with its id."""
    if isinstance(fields, list):
        fields = pairs(fields)
    elif not isinstance(fields, dict):
        raise RowError(f"entry {name[:40]!r} has no fields (was it deleted?)")
    return {"id": name, "number": _number(name), "fields": fields}


def _number(name: str) -> int:
    found = _ID.fullmatch(name)
    if found is None or int(found[2]) >> SEQUENCE_BITS:
        raise RowError(f"{name[:40]!r} is not the id of an entry, like 1700000000000-0")
    return int(found[1]) << SEQUENCE_BITS | int(found[2])


def _own(row: Row) -> Row:
    """Return what a receiver writes by itself; where it tells of an entry, with its number."""
    if isinstance(row.get("fields"), list):
        row["fields"] = pairs(row["fields"])
    if isinstance(row.get("id"), str) and _ID.fullmatch(row["id"]):
        row.setdefault("number", _number(row["id"]))
    return row


def _pushed(told: list[Any]) -> Iterator[Row]:
    kind = told[0]
    if kind in OTHERS:
        return
    if len(told) != MESSAGES.get(kind):
        raise RowError(f"{kind[:40]!r} is not what a subscriber gets")
    row = {"channel": told[-2], "data": told[-1]}
    yield row if kind != "pmessage" else {"pattern": told[1], **row}
