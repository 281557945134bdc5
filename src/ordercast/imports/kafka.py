"""What consumers of Kafka print: `kcat -J`, and kafka-console-consumer with its print properties."""

import re
from collections.abc import Iterator, Sequence

from ordercast.imports.rows import Reader, Row, RowError, last_values, object_in, pairs

PRINTED = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
"""What kafka-console-consumer prints when the property `print.<name>` is true, always in this order."""
LABELS = {"partition": "Partition:", "offset": "Offset:", "delivery": "Delivery:", "epoch": "Epoch:"}
_TIME = re.compile(r"\w+:(-?\d+)")


def kcat(line: bytes) -> Iterator[Row]:
    """Read a line of `kcat -J`: topic, partition, offset, ts, headers, key, payload."""
    row = object_in(line)
    headers = row.get("headers")
    if isinstance(headers, list):
        row["headers"] = pairs(headers)
    elif isinstance(headers, dict):  # kcat can print them as a map
        row["headers"] = last_values(headers)
    yield row


def console(printed: Sequence[str]) -> Reader:
    """Return a reader of lines that kafka-console-consumer prints, with tabs between these parts."""

    def read(line: bytes) -> Iterator[Row]:
        try:
            parts = line.decode().split("\t", len(printed) - 1)
        except UnicodeDecodeError as error:
            raise RowError(f"not UTF-8 text (byte {error.start})") from None
        if len(parts) != len(printed):
            raise RowError(f"{len(parts)} parts between tabs, not {len(printed)} ({', '.join(printed)})")
        yield {name: _part(name, text) for name, text in zip(printed, parts, strict=True)}

    return read


def _part(name: str, text: str) -> object:
    if name in LABELS:
        value = text.removeprefix(LABELS[name])
        if value == text:
            raise RowError(f"{name} is {text[:40]!r}, which does not begin with {LABELS[name]!r}")
        return value
    if name == "timestamp":
        found = _TIME.fullmatch(text)
        if found is None and text != "NO_TIMESTAMP":
            raise RowError(f"timestamp is {text[:40]!r}, not like CreateTime:1700000000000")
        return None if found is None else found[1]
    return _headers(text) if name == "headers" else text


def _headers(text: str) -> Row:
    if text == "NO_HEADERS":
        return {}
    found = [part.partition(":") for part in text.split(",")]
    if not all(colon for _, colon, _ in found):
        raise RowError(f"headers are {text[:40]!r}, not like name:value,name:value")
    return {name: value for name, _, value in found}
