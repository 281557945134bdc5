"""Hashes of names: they mix, names of every structure keep apart, and nothing but sums ever rests on them."""

import numpy as np
import pyarrow as pa
import pytest

from ordercast.audit import columns as arrow
from ordercast.audit import kernels, plain
from ordercast.audit.kernels import Key, fresh_key

MANY = 200_000
FIXED = Key(np.random.default_rng(0).integers(2**64, size=128, dtype=np.uint64), np.uint64(2**64 - 1))


def _bytes_8_and_12() -> list[str]:
    """Names of 12 bytes that differ in byte 8 and byte 12 by the same bits."""
    letters = [chr(letter) for letter in range(0x30, 0x70)]
    return [f"{number:07d}{one}abc{other}" for number in range(60) for one in letters for other in letters]


FAMILIES = {
    "bytes 8 and 12": _bytes_8_and_12(),
    "site-N:n": [f"site-{number % 64}:{number // 64}" for number in range(MANY)],
    "tenant000042": [f"tenant{number:06d}" for number in range(MANY)],
    "client-NN:n": [f"client-{number % 97:02d}:{number // 97}" for number in range(MANY)],
    "telephone": [f"+49 30 {number * 37 % 10_000_000:07d}" for number in range(MANY)],
    "IPv4": [f"10.{n >> 14 & 63}.{n >> 7 & 127}.{n & 127}" for n in range(MANY)],
    "numbers": [str(number) for number in range(MANY)],
    "long, the middle differs": [f"{'a' * 40}{number:08x}{'b' * 600}" for number in range(2_000)],
}


@pytest.mark.slow
@pytest.mark.parametrize("key", [FIXED, fresh_key()], ids=["fixed", "fresh"])
@pytest.mark.parametrize("family", FAMILIES)
def test_structured_names_do_not_collide(family: str, key: Key) -> None:
    """By chance a pair among 200,000 names meets once in 900 million tries."""
    names = FAMILIES[family]
    found = arrow.hashes_of(names, key)

    assert len(names) == len(set(names)) == len(np.unique(found))


@pytest.mark.parametrize("key", [FIXED, fresh_key()], ids=["fixed", "fresh"])
def test_every_bit_of_a_name_changes_half_of_the_hash(key: Key) -> None:
    """Avalanche: for names of every small length, each bit turned, each bit of the hash turns in 35 to 65 of 100."""
    chance = np.random.default_rng(3)
    for size in (3, 7, 8, 9, 12, 16, 20):
        names = chance.integers(256, size=(MANY // 200, size), dtype=np.uint8)
        before = _hashes(names, key)
        for bit in range(8 * size):
            turned = names.copy()
            turned[:, bit // 8] ^= 1 << bit % 8
            differ = np.unpackbits((before ^ _hashes(turned, key)).view(np.uint8)).reshape(-1, 64).mean(axis=0)
            assert 0.35 < differ.min() and differ.max() < 0.65, (size, bit)


def _hashes(names: np.ndarray, key: Key) -> np.ndarray:
    return plain.hash_bytes(arrow.laid_out(pa.array([row.tobytes() for row in names], pa.binary())), key)


@pytest.mark.slow
def test_arrays_and_compiled_loops_hash_alike() -> None:
    """Of all lengths, at any place in memory, longer than what arrays do together, with few bits kept or all."""
    chance = np.random.default_rng(4)
    sizes = [*range(40), 255, 504, 511, 512, 513, 5000]
    texts = [chance.integers(256, size=size, dtype=np.uint8).tobytes() for size in sizes * 2]
    strings = arrow.laid_out(pa.array(texts, pa.binary()).slice(3))
    for key in (FIXED, fresh_key(), fresh_key(bits=2)):
        found = plain.hash_bytes(strings, key)
        assert found.tolist() == kernels.hash_bytes(strings, key).tolist()
        assert found.max() <= key.kept


def test_keys_differ_and_so_do_the_hashes() -> None:
    """Nobody can craft names that collide without the key; two runs have two keys."""
    one, other = (arrow.hashes_of(["a", "b", "site-1:1"], fresh_key()) for _ in range(2))

    assert not set(one.tolist()) & set(other.tolist())
    assert len(set(arrow.hashes_of([str(n) for n in range(100)], fresh_key(bits=2)).tolist())) <= 4
