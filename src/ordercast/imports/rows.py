"""A row of somebody's log: a JSON object, whatever it came from, and what is wrong with it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]
Reader: TypeAlias = Callable[[bytes], Iterable[Row]]
"""Returns the rows of one line of a file."""

FILE, LINE = "@file", "@line"
"""Fields that every row has: the name of its file, and the line it is in."""


class RowError(ValueError):
    """A row cannot be used; says why. Whoever reads the file adds its name and the line."""


_decode = msgspec.json.Decoder().decode


def decoded(line: bytes | str) -> Any:
    """Read JSON."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowError(f"not JSON: {error}") from None
    except RecursionError:
        raise RowError("not JSON: nested too deeply") from None


def object_in(line: bytes) -> Row:
    """Read a line that is a JSON object."""
    row = decoded(line)
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    return row


def pairs(flat: list[Any]) -> Row:
    """Return [name, value, name, value] as an object; of a name that is there twice the last value counts."""
    if len(flat) % 2 or not all(isinstance(name, str) for name in flat[::2]):
        raise RowError("not a list of names and values in turn")
    return dict(zip(flat[::2], flat[1::2], strict=True))


def last_values(many: Mapping[str, Any]) -> Row:
    """Return headers that may have several values each with their last."""
    return {name: value[-1] if isinstance(value, list) and value else value for name, value in many.items()}
