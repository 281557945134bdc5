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
