"""Tables packed as bytes: nothing is lost on the way, and a name is in one share wherever it is dealt out."""

import numpy as np
import pyarrow as pa

from ordercast.audit.kernels import fresh_key
from ordercast.audit.packed import packed, share_by_share, shares_of, unpacked


def test_rows_are_dealt_out_by_name_and_come_back_whole() -> None:
    key = fresh_key()
    tables = [
        pa.table({"name": [f"n{(at * step) % 37}" for at in range(many)], "at": range(many)})
        for step, many in ((3, 100), (5, 60))
    ]
    rows = pa.concat_tables([packed("x", t, shares_of(t.column("name"), 7, key), rows=100) for t in tables])
    order = np.argsort(rows.column("share").to_numpy(), kind="stable")
    came = list(share_by_share(rows.take(pa.array(order)).to_batches(max_chunksize=3)))
    names = [set(table.column("name").to_pylist()) for table in came]

    assert len(came) == len(set(rows.column("share").to_pylist())) > 1
    assert sum(map(len, names)) == len(set.union(*names)) == 37, "no name is in two shares"
    assert pa.concat_tables(came).sort_by([("name", "ascending"), ("at", "ascending")]).to_pylist() == sorted(
        (row for table in tables for row in table.to_pylist()), key=lambda row: (row["name"], row["at"])
    )
    assert (sum(rows.column("n").to_pylist()), sum(rows.column("rows").to_pylist())) == (160, 200)


def test_a_table_without_rows_is_nothing() -> None:
    assert len(packed("x", pa.table({"name": pa.array([], pa.string())}))) == 0
    assert list(share_by_share([])) == []
    assert unpacked(packed("x", pa.table({"a": [1, 2]})).column("data").to_pylist()).to_pydict() == {"a": [1, 2]}
