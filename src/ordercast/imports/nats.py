"""What receivers of NATS record: `nats sub --dump -`, `nats stream get --json`, or JSON lines of their own."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from ordercast.imports.rows import Reader, Row, RowError, last_values, object_in

GO = {"Subject": "subject", "Reply": "reply", "Header": "headers", "Data": "data"}
"""Names in the Go client's messages, which `nats sub --dump` writes as they are, and ours."""
ACK = "$JS.ACK."


def reader(*, base64_data: bool) -> Reader:
    """Return a reader; with `base64_data` the data of a message is base64, as in `nats stream get --json`."""

    def read(line: bytes) -> Iterator[Row]:
        if line.startswith(b"[#"):
            raise RowError("this is what `nats sub` shows to people; record with `nats sub --dump -`")
        row = object_in(line)
        if "Subject" in row:
            row = {GO.get(name, name): value for name, value in row.items()}
            row["data"] = _bytes("Data", row.get("data") or "")
        elif base64_data:
            row["data"] = _bytes("data", row.get("data") or "")
        if isinstance(row.get("hdrs"), str):
            row["headers"] = _header_block(_bytes("hdrs", row["hdrs"]))
        if isinstance(row.get("headers"), dict):
            row["headers"] = last_values(row["headers"])
        _add_number(row)
        yield row

    return read


def _bytes(name: str, text: Any) -> str | bytes:
    """Return base64 as text where it is text, else as bytes."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise RowError(f"{name} is not base64") from None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _header_block(block: str | bytes) -> Row:
    """Read headers as they go over the wire: a line `NATS/1.0`, then a line per header."""
    if not isinstance(block, str) or not block.startswith("NATS/1.0"):
        raise RowError("hdrs has no NATS/1.0 headers in it")
    lines = [line.partition(":") for line in block.split("\r\n")[1:] if line]
    return {name: value.strip() for name, _, value in lines}


def _add_number(row: Row) -> None:
    """Add `stream` and `seq`, which JetStream puts into the subject that an acknowledgement goes to."""
    reply = row.get("reply")
    if "seq" in row or not isinstance(reply, str) or not reply.startswith(ACK):
        return
    parts = reply.removeprefix(ACK).split(".")
    if len(parts) > 7:  # newer servers put domain and account before the stream
        parts = parts[2:]
    if len(parts) < 7:
        raise RowError(f"reply {reply[:80]!r} is not one of JetStream")
    row["stream"], row["seq"] = parts[0], parts[3]
