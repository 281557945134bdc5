"""Lines of a file, compressed or not, a piece at a time."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from ordercast.errors import InputError

PIECE_BYTES = 2**20
LINE_BYTES_AT_MOST = 64 * 2**20
GZIP = b"\x1f\x8b"


def lines(path: Path, tell: Callable[[int], None] = lambda many: None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that are not empty, with their numbers from 1.

    A zero byte ends a line too: `nats sub --dump -` puts one after each message. `tell` hears of every so many bytes
    that have been read.
    """
    number = 0
    try:
        with path.open("rb") as file, _plain(file) as source:
            rest, told = b"", 0
            while piece := source.read(PIECE_BYTES):
                *whole, rest = (rest + piece).replace(b"\0", b"\n").split(b"\n")
                for line in whole:
                    number += 1
                    if line and not line.isspace():
                        yield number, line
                if len(rest) > LINE_BYTES_AT_MOST:
                    raise InputError(f"{path}: line {number + 1}: more than {LINE_BYTES_AT_MOST // 2**20} MiB")
                tell(file.tell() - told)
                told = file.tell()
            if rest and not rest.isspace():
                yield number + 1, rest
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: after line {number}: gzip is damaged: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _plain(file: IO[bytes]) -> IO[bytes]:
    """Return what reads a file that may be compressed: it says so itself, whatever it is called."""
    compressed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if compressed else file
