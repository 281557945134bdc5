"""The mark beside a history: whose it is, and how much of it was acknowledged.

SQLite drops what it cannot read at the end of its log, and says nothing: for it, that is a commit that did not happen.
The mark tells the two apart. It is written after a commit and before anybody is told of it, so

- it never says more than was committed: no honest crash makes a history end before its mark;
- a history that ends before its mark has lost what was acknowledged: its files were cut or damaged, or the disk said
  that something was written which was not.

The mark is in the page cache when a commit is acknowledged, and on disk a second later: a second fsync for each commit
would halve the rate of small ones. So a killed process leaves an exact mark. A power failure may leave one that is a
second old: if the disk *also* lied about the log, what it lost of that second is not found here but by the peers, which
remember how many records this site had (`records.Met`). An old copy of the whole folder is found only by them, too.
"""

import os
import time
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from ordercast.errors import HistoryError
from ordercast.history.store import Identity

FORMAT = 2
MAGIC = b"ordercast history %d\n" % FORMAT
HEAD_BYTES = 4096  # the identity never shares a sector with what is written again and again
SYNC_SECONDS = 1.0

_crc = Struct(">I")
_told = Struct(">QQQB")


class Told(NamedTuple):
    """What was acknowledged."""

    records: int = 0
    positions: int = 0
    """The position behind the last durable entry of the index."""
    kept: int = 0
    """Records of the last checkpoint, plus 1; 0 before the first."""
    created: bool = False
    """The database is there. Until then an empty folder has lost nothing."""


class Mark:
    """The open file. It is one sector that is written in place: a disk writes a sector wholly or not at all."""

    def __init__(self, path: Path, identity: Identity, told: Told, file: int) -> None:
        self.path, self.identity, self.told = path, identity, told
        self._file = file
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, identity: Identity) -> "Mark":
        """Write a new mark; after a crash there is either all of it or none."""
        head = MAGIC + msgspec.json.encode(identity) + b"\n"
        if len(head) > HEAD_BYTES - _crc.size:
            raise HistoryError(f"{path}: the names of cluster and site are too long")
        head = head.ljust(HEAD_BYTES - _crc.size, b"\0")
        unfinished = path.with_suffix(".new")
        file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        mark = cls(path, identity, Told(), file)
        os.write(file, head + _crc.pack(crc32(head)))
        mark.write(Told())
        mark.sync()
        unfinished.rename(path)
        return mark

    @classmethod
    def open(cls, path: Path) -> "Mark | None":
        """Open the mark of this format that is there, if there is one; raises HistoryError when it is damaged."""
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        data = os.pread(file, HEAD_BYTES + _told.size + _crc.size, 0)
        try:
            return cls(path, *_read(data), file)
        except (ValueError, msgspec.MsgspecError):
            os.close(file)
            raise HistoryError(f"{path}: damaged") from None

    def write(self, told: Told) -> None:
        """Say what is acknowledged from now on."""
        self.told = told
        data = _told.pack(*told)
        os.pwrite(self._file, data + _crc.pack(crc32(data)), HEAD_BYTES)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Wait until the mark is on disk."""
        os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _read(data: bytes) -> tuple[Identity, Told]:
    """Return what a mark says; raises ValueError or MsgspecError when it is none."""
    if len(data) != HEAD_BYTES + _told.size + _crc.size or not data.startswith(MAGIC):
        raise ValueError
    head, told = data[:HEAD_BYTES], data[HEAD_BYTES:]
    for part in (head, told):
        if _crc.unpack(part[-_crc.size :]) != (crc32(part[: -_crc.size]),):
            raise ValueError
    line = head[len(MAGIC) : -_crc.size].rstrip(b"\0")
    records, positions, kept, created = _told.unpack(told[: -_crc.size])
    return msgspec.json.decode(line, type=Identity), Told(records, positions, kept, bool(created))
