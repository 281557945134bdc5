"""What a mapping says of one column, made into a function of a row: a field, a constant, a part of a text.

`"a.b"` and `["a", "b"]` are fields; a table has one of `field`, `fields` (joined) and `value`, and may have `match` (a
regular expression with one group) and `encoding`.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ordercast.imports.rows import FILE, LINE, Row, RowError, decoded
from ordercast.runs.schema import BINARY, GROUPS, NUMBER, TEXT, WHOLE
from ordercast.runs.writer import body_hash

Value: TypeAlias = Callable[[Row], Any]
KEYS = ("field", "fields", "with", "value", "match", "encoding")
ENCODINGS = ("base64", "hex")
BODY = "body"
"""A kind of its own: anything, of which a hash is kept."""
MISSING = object()
_WHOLE = re.compile(r"-?\d{1,19}", re.ASCII)
_parsed = lru_cache(maxsize=8)(decoded)  # several fields of one text: it is read once


class SpecError(ValueError):
    """A mapping asks for what there is not; says what. Whoever reads the mapping adds where."""


def path_of(name: Any) -> tuple[str, ...]:
    """Return the keys that lead to a field: the parts of a text between dots, or a list of keys as it is."""
    keys = tuple(name.split(".")) if isinstance(name, str) and not name.startswith("@") else name
    if isinstance(name, str) and name.startswith("@"):
        if name not in (FILE, LINE):
            raise SpecError(f"field {name!r}: with '@' there are {FILE} and {LINE}")
        keys = (name,)
    if not isinstance(keys, tuple | list) or not keys or not all(isinstance(key, str) and key for key in keys):
        raise SpecError(f"a field is a text or a list of texts, not {str(name)[:60]!r}")
    return tuple(keys)


def look_up(row: Row, path: Sequence[str]) -> Any:
    """Return the value at a path, or `MISSING`; a text that the path goes on below is read as JSON."""
    found: Any = row
    for key in path:
        if isinstance(found, str | bytes):
            found = _parsed(found)
        if not isinstance(found, dict):
            return MISSING
        found = found.get(key, MISSING)
    return found


def value_of(spec: Any, kind: str, *, may_be_null: bool = False) -> Value:
    """Return the function that a mapping describes, and that gives a value of this kind or raises RowError."""
    given = spec if isinstance(spec, Mapping) else {"field": spec}
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        raise SpecError(f"unknown key {unknown[0]!r} (there are {', '.join(KEYS)})")
    raw = _matched(_raw(given), given["match"]) if "match" in given else _raw(given)
    convert = _converter(kind, given.get("encoding"))

    if "value" in given:
        try:
            same = convert(given["value"])
        except RowError as error:
            raise SpecError(str(error)) from None
        return lambda row: same
    if may_be_null:
        return lambda row: None if (found := raw(row)) is None else convert(found)
    return lambda row: convert(raw(row))


def _raw(given: Mapping[str, Any]) -> Value:
    """Return what gets the value as it stands in the row."""
    if len(given.keys() & {"field", "fields", "value"}) != 1:
        raise SpecError("give one of field, fields and value")
    if "with" in given and ("fields" not in given or not isinstance(given["with"], str)):
        raise SpecError("with is a text, and goes with fields")
    if "value" in given:
        if given.keys() - {"value", "encoding"}:
            raise SpecError("value goes with nothing else")
        return lambda row: given["value"]
    if "field" in given:
        return _field(path_of(given["field"]))
    names, between = given["fields"], given.get("with", ":")
    if not isinstance(names, list) or not names:
        raise SpecError("fields is a list of fields")
    parts = [_field(path_of(name)) for name in names]
    return lambda row: between.join(_text(part(row)) for part in parts)


def _field(path: tuple[str, ...]) -> Value:
    key = path[0]

    def own(row: Row) -> Any:
        try:
            return row[key]
        except KeyError:
            raise _no_field(row, path) from None

    def deeper(row: Row) -> Any:
        found = look_up(row, path)
        if found is MISSING:
            raise _no_field(row, path)
        return found

    return own if len(path) == 1 else deeper


def _no_field(row: Row, path: Sequence[str]) -> RowError:
    there = ", ".join(name for name in row if not name.startswith("@"))
    return RowError(f"no field {'.'.join(path)!r} (there are {there[:120] or 'none'})")


def _matched(raw: Value, pattern: Any) -> Value:
    """Return what takes a part out of a text."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, OverflowError) as error:
        raise SpecError(f"match is not a regular expression: {error}") from None
    if compiled.groups != 1:
        raise SpecError(f"match {pattern!r} needs one group in parentheses: what is inside counts")

    def value(row: Row) -> Any:
        text = _text(raw(row))
        found = compiled.search(text)
        if found is None or found[1] is None:
            raise RowError(f"{text[:60]!r} does not match {pattern!r}")
        return found[1]

    return value


def _converter(kind: str, encoding: Any) -> Callable[[Any], Any]:
    if encoding is not None and (kind not in (BINARY, BODY) or encoding not in ENCODINGS):
        raise SpecError(f"encoding is for bodies and stamps: {' or '.join(ENCODINGS)}")
    match kind:
        case "body":
            return lambda found: body_hash(_bytes(found, encoding) if encoding else body_bytes(found))
        case "binary":
            return lambda found: _bytes(found, encoding or "hex")
    return {TEXT: _name, GROUPS: _groups, WHOLE: _whole, NUMBER: _number}[kind]


def _text(found: Any) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if isinstance(found, bytes):
        raise RowError("not UTF-8 text")
    raise RowError(f"{_shown(found)} is neither a text nor a whole number")


def _name(found: Any) -> str:
    text = _text(found)
    if not text:
        raise RowError("empty")
    return text


def _groups(found: Any) -> str:
    """Return the groups of a message as logs write them, in one order: `a+b` and `b+a` are one message's."""
    if isinstance(found, str) and found and "+" not in found:
        return found
    if isinstance(found, list):
        names = [_name(name) for name in found]
        if any("+" in name for name in names):
            raise RowError(f"{_shown(found)}: a group's name must not have a '+'")
    else:
        names = [name for name in _name(found).split("+") if name]
    if not names:
        raise RowError("no group")
    return names[0] if len(names) == 1 else "+".join(sorted(set(names)))


def _whole(found: Any) -> int:
    if isinstance(found, str) and _WHOLE.fullmatch(found):
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool):
        raise RowError(f"{_shown(found)} is not a whole number")
    if not -(2**63) <= found < 2**63:
        raise RowError(f"{_shown(found)} takes more than 64 bits")
    return found


def _number(found: Any) -> float:
    try:
        number = float(found) if isinstance(found, int | float | str) and not isinstance(found, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"{_shown(found)} is not a number")
    return number


def _bytes(found: Any, encoding: str) -> bytes:
    text = _text(found)
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RowError(f"{_shown(found)} is not {encoding}") from None


def body_bytes(found: Any) -> bytes:
    """Return a body as bytes: text as UTF-8, anything else of JSON as text with sorted keys."""
    if isinstance(found, bytes):
        return found
    return found.encode() if isinstance(found, str) else msgspec.json.encode(found, order="sorted")


def _shown(found: Any) -> str:
    text = found if isinstance(found, str) else "null" if found is None else str(found)
    return repr(text[:60]) if isinstance(found, str) else text[:60]
