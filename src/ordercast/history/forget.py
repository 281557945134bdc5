"""Which records a checkpoint makes superfluous, found with work that grows with what is new, not with what is kept.

Records up to the checkpoint are in its state. Readers that resume need those among them that a kept entry of the index
refers to; a message that is held back will get its entry later, so its record is `needed`. All others go.

Records are stored in chunks. A chunk goes when none of its records is wanted; when less than half of its bytes are, it
is written again without the others. Each chunk is looked at once, at the first checkpoint behind it: the entries that
may refer to it are those since the checkpoint before. What is then found stands in the table `uses`: the position up to
which the chunk is wanted. Later entries, of messages held back long, raise it.
"""

from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from ordercast.history.store import Checkpoint

if TYPE_CHECKING:
    from ordercast.history.disk import DiskHistory


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What stands beside the state in a checkpoint's row."""

    delivered: int = 0
    first_position: int = 0
    """Where the index begins."""
    swept: int = 0
    """All chunks up to this record were looked at."""
    entries_from: int = 0
    """Only entries from here on may refer to records after that."""


def sweep(
    history: "DiskHistory", last: Head, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int]
) -> Head:
    """Delete, within a transaction, what nobody needs; returns the new head."""
    ends: dict[int, int] = {}  # record -> the last position that refers to it
    for entry in history.entries(max(last.entries_from, history.first_position)):
        ends[entry.record] = entry.end
    held = set(needed)
    _raise_uses(history, last.swept, ends)
    swept = _look_at_new(history, last.swept, checkpoint.records, ends, held)
    first_position = _drop_entries(history, from_delivered)
    _delete_unused(history, first_position, {history.chunk_with(record) for record in held if record <= swept})
    entries_from = checkpoint.delivered if swept == checkpoint.records else last.entries_from
    return Head(checkpoint.delivered, first_position, swept, entries_from)


def _raise_uses(history: "DiskHistory", swept: int, ends: dict[int, int]) -> None:
    """Note later entries that refer to chunks looked at before."""
    for record, end in ends.items():
        if record <= swept:
            query = "UPDATE uses SET until = max(until, ?) WHERE chunk = ?"
            history.execute(query, end, history.chunk_with(record))


def _look_at_new(history: "DiskHistory", swept: int, upto: int, ends: dict[int, int], held: set[int]) -> int:
    """Delete, shrink or note each chunk that lies wholly between two checkpoints; returns the last record of them."""
    query = "SELECT first FROM chunks WHERE first > ? AND first <= ? ORDER BY first"
    keys = [key for (key,) in history.execute(query, swept, upto + 1).fetchall()]
    if upto == history.count:
        keys.append(upto + 1)
    for first, after in pairwise(keys):
        wanted = [record for record in range(first, after) if record in ends or record in held]
        if not wanted:
            history.execute("DELETE FROM chunks WHERE first = ?", first)
        else:
            until = max(ends.get(record, 0) for record in wanted)
            history.execute("INSERT INTO uses VALUES (?, ?)", first, until)
            if len(wanted) < after - first:
                _shrink(history, first, set(wanted))
        swept = after - 1
    return swept


def _shrink(history: "DiskHistory", first: int, wanted: set[int]) -> None:
    """Write a chunk again without what is not wanted, when that is more than half of it."""
    row = history.execute("SELECT * FROM chunks WHERE first = ?", first).fetchone()
    chunk = history.chunk(*row)
    less = [data if record in wanted else None for record, data in enumerate(chunk, start=first)]
    if 2 * sum(len(data or b"") for data in less) < sum(len(data or b"") for data in chunk):
        history.put_chunk(first, less)


def _delete_unused(history: "DiskHistory", first_position: int, held: set[int]) -> None:
    """Delete the chunks that no kept entry refers to any more, and no later one will."""
    unused = history.execute("SELECT chunk FROM uses WHERE until <= ?", first_position).fetchall()
    for (key,) in unused:
        if key not in held:
            history.execute("DELETE FROM chunks WHERE first = ?", key)
            history.execute("DELETE FROM uses WHERE chunk = ?", key)


def _drop_entries(history: "DiskHistory", from_delivered: int) -> int:
    """Drop the rows of the index that end before a position; returns where it begins now."""
    if from_delivered >= history.next_position:
        history.execute("DELETE FROM positions")
        return history.next_position
    (first,) = history.execute("SELECT max(first) FROM positions WHERE first <= ?", from_delivered).fetchone()
    history.execute("DELETE FROM positions WHERE first < ?", first)
    return int(first)
