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

from ordercast.history.database import Database, Head
from ordercast.history.store import Checkpoint

if TYPE_CHECKING:
    from ordercast.history.disk import DiskHistory


def forget(
    history: "DiskHistory", last: Head, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int]
) -> Head:
    """Delete, within a transaction, what nobody needs; returns the new head."""
    entries = list(history.entries(max(last.entries_from, history.first_position)))
    ends = {entry.record: entry.end for entry in entries}  # record -> the last position that refers to it
    held = set(needed)
    database = history.database
    _raise_uses(database, last.swept, ends)
    after = [checkpoint.records + 1] if checkpoint.records == history.count else []
    swept = _look_at_new(database, last.swept, checkpoint.records, after, ends, held)
    first_position = _drop_entries(database, from_delivered, history.next_position)
    _delete_unused(database, first_position, {database.chunk_with(record) for record in held if record <= swept})
    entries_from = checkpoint.delivered if swept == checkpoint.records else last.entries_from
    # What a site says beside messages has its position before its record: the record may come after the checkpoint.
    entries_from = min([entries_from, *(entry.position for entry in entries if entry.record > swept)])
    return Head(checkpoint.delivered, first_position, swept, entries_from)


def _raise_uses(database: Database, swept: int, ends: dict[int, int]) -> None:
    """Note later entries that refer to chunks looked at before."""
    for record, end in ends.items():
        if record <= swept:
            query = "UPDATE uses SET until = max(until, ?) WHERE chunk = ?"
            database.execute(query, end, database.chunk_with(record))


def _look_at_new(
    database: Database, swept: int, upto: int, end: list[int], ends: dict[int, int], held: set[int]
) -> int:
    """Delete, shrink or note each chunk that lies wholly between two checkpoints; returns the last record of them.

    `end` is the key behind the last chunk, when the second checkpoint stands there.
    """
    query = "SELECT first FROM chunks WHERE first > ? AND first <= ? ORDER BY first"
    keys = [key for (key,) in database.execute(query, swept, upto + 1).fetchall()]
    for first, after in pairwise(keys + end):
        wanted = [record for record in range(first, after) if record in ends or record in held]
        if not wanted:
            database.execute("DELETE FROM chunks WHERE first = ?", first)
        else:
            until = max(ends.get(record, 0) for record in wanted)
            database.execute("INSERT INTO uses VALUES (?, ?)", first, until)
            if len(wanted) < after - first:
                _shrink(database, first, set(wanted))
        swept = after - 1
    return swept


def _shrink(database: Database, first: int, wanted: set[int]) -> None:
    """Write a chunk again without what is not wanted, when that is more than half of it."""
    chunk = database.chunk(first)
    less = [data if record in wanted else None for record, data in enumerate(chunk, start=first)]
    if 2 * sum(len(data or b"") for data in less) < sum(len(data or b"") for data in chunk):
        database.execute("DELETE FROM chunks WHERE first = ?", first)
        database.put_chunk(first, less)


def _delete_unused(database: Database, first_position: int, held: set[int]) -> None:
    """Delete the chunks that no kept entry refers to any more, and no later one will."""
    unused = database.execute("SELECT chunk FROM uses WHERE until <= ?", first_position).fetchall()
    for (key,) in unused:
        if key not in held:
            database.execute("DELETE FROM chunks WHERE first = ?", key)
            database.execute("DELETE FROM uses WHERE chunk = ?", key)


def _drop_entries(database: Database, from_delivered: int, next_position: int) -> int:
    """Drop the rows of the index that end before a position; returns where it begins now."""
    if from_delivered >= next_position:
        database.execute("DELETE FROM positions")
        return next_position
    (first,) = database.one("SELECT max(first) FROM positions WHERE first <= ?", from_delivered)
    database.execute("DELETE FROM positions WHERE first < ?", first)
    return int(first)
