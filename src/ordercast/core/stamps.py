"""Stamps: bytes that say where a message stands. Inside one order, larger bytes come later.

A stamp starts with the epoch of its class: everything ordered after a change is larger than everything before it.
"""

from ordercast.names import ClassId

NUMBER = 8  # bytes


def first_of(class_id: ClassId) -> bytes:
    """Return what every stamp of a class starts with."""
    return class_id.epoch.to_bytes(NUMBER, "big")


def at(start: bytes, number: int, tie: str = "") -> bytes:
    """Return the stamp of a number, with the name that breaks ties behind it."""
    return start + number.to_bytes(NUMBER, "big") + tie.encode()


def level(count: int) -> bytes:
    """Return one level of a stamp that grows along a tree.

    Its first bit is set. A live site counts the messages of a batch behind the stamp of their envelope, in numbers
    whose first bit is not set: so a stamp that goes on with another level comes after the whole batch.
    """
    return (2**63 + count).to_bytes(NUMBER, "big")


def is_of_tree(stamp: bytes, start: bytes, depth: int) -> bool:
    """Whether a site at this depth of a tree may get a stamp from above: the epoch, then levels, not more than it has.

    A stamp of another form could stand between those that the sites below give.
    """
    size = len(stamp)
    if size % NUMBER or not 2 * NUMBER <= size <= (depth + 1) * NUMBER or not stamp.startswith(start):
        return False
    return min(stamp[NUMBER::NUMBER]) >= 0x80
