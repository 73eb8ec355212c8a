"""Bodies as views: they show the mapped bytes, and files written from them equal those written from copies."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.analytics.dump.parquet import PartWriter
from rmqtool.analytics.ranges.splits import plan
from rmqtool.analytics.remote.files import Folder
from rmqtool.analytics.table.arrow import batches
from rmqtool.analytics.table.choice import MessageChoice
from rmqtool.analytics.table.tally import SplitTally
from rmqtool.analytics.table.views import has_views, memory_of, take
from rmqtool.kernels.arrow import views_of
from rmqtool.kernels.load.memory import address_of
from rmqtool.kernels.tables.messages import VIEW_INLINE as INLINE
from rmqtool.kernels.tables.messages import Texts
from rmqtool.store.dispatch import batch as dispatch
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests import goldens
from tests.amounts import by_turns
from tests.analytics.helpers import log_of, store_of
from tests.conftest import Unpacked

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let compiled code create views for all bodies."""
    monkeypatch.setattr(dispatch, "BULK_BYTES", 64)


def read(store: StoreLayout, *, views: bool, batch_bytes: int = 8 << 20) -> list[pa.RecordBatch]:
    result = []
    for split in plan(CommitLog(store))[0]:
        # where bodies take no memory, a batch has four times as many
        result += batches(split, MessageChoice(), SplitTally(), batch_bytes // (4 if views else 1), views=views)
    assert all(has_views(batch.schema) == views for batch in result)
    return result


@given(st.lists(st.binary(max_size=3 * INLINE), max_size=20), st.integers(0, 5), st.integers(0, 9))
def test_views_show_texts_where_they_lie(texts: list[bytes], gap: int, number: int) -> None:
    data = b"".join(text + b"-" * gap for text in texts) + b"."
    begin, _keep = address_of(data)
    length = np.array([len(text) for text in texts], np.int64)
    ends = np.cumsum(length + gap)
    views = views_of(Texts(begin + ends - gap - length, length), begin, number)
    others = [pa.py_buffer(b"other")] * number
    shown = pa.Array.from_buffers(
        pa.binary_view(), len(texts), [None, pa.py_buffer(views), *others, pa.py_buffer(data)]
    )
    shown.validate(full=True)
    assert shown.to_pylist() == texts


@pytest.mark.parametrize(("address", "length"), [(99, 20), (100 + (1 << 31), 20), (100, -1)])
def test_what_no_view_can_show(address: int, length: int) -> None:
    with pytest.raises(ValueError, match="do not lie in a buffer at 100"):
        views_of(Texts(np.array([address]), np.array([length])), 100, 0)


def test_rows_are_taken_with_what_they_show(golden: Unpacked) -> None:
    (viewed,) = read(StoreLayout(str(golden("broker"))), views=True)
    (owned,) = read(StoreLayout(str(golden("broker"))), views=False)
    order = np.random.default_rng(1).permutation(viewed.num_rows)[: viewed.num_rows // 2]
    for batch, same in ((viewed, owned), (viewed.slice(7), owned.slice(7))):
        rows = order[order < batch.num_rows]
        taken = take(batch, rows)
        taken.validate(full=True)
        assert taken.column("body").cast(pa.binary()).equals(same.column("body").take(pa.array(rows)))
        assert taken.column("physicalOffset").equals(same.column("physicalOffset").take(pa.array(rows)))
        assert memory_of(taken) == pytest.approx(take(same, rows).nbytes, rel=0.001)  # which marks all as there
    assert take(viewed, order[:0]).num_rows == 0


@by_turns(2)
@pytest.mark.parametrize("case", goldens.cases())
@pytest.mark.parametrize("partition_by", [(), ("topic", "day")])
def test_files_are_those_that_copies_give(
    case: str, partition_by: tuple[str, ...], golden: Unpacked, tmp_path: Path
) -> None:
    store = StoreLayout(str(golden(case)))
    made = [
        written(read(store, views=views, batch_bytes=1 << 16), tmp_path / str(views), partition_by) for views in (0, 1)
    ]
    assert made[0] == made[1]


def written(record_list: list[pa.RecordBatch], folder: Path, partition_by: tuple[str, ...]) -> dict[str, bytes]:
    folder.mkdir()
    writer = PartWriter(Folder(str(folder)), "part", "run", partition_by, row_group_bytes=1 << 17)
    for batch in record_list:
        writer.write(batch)
    return {part.path: (folder / part.path).read_bytes() for part in writer.close()}


def test_a_writer_says_when_it_has_written(tmp_path: Path) -> None:
    (batch,) = read(store_of(tmp_path, log_of(["A", "B"])), views=True)
    writer = PartWriter(Folder(str(tmp_path)), "part", "run", row_group_bytes=2 * memory_of(batch))
    assert [writer.write(batch) for _time in range(5)] == [False, True, False, True, False]
    assert sum(part.rows for part in writer.close()) == 10


def test_small_stores_do_without_compiled_code(golden: Unpacked, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from rmqtool.analytics.dump.dump import DumpOptions, dump_to_parquet\n"
        "from rmqtool.store.layout.paths import StoreLayout\n"
        "print(dump_to_parquet(StoreLayout(sys.argv[1]), sys.argv[2], DumpOptions(runner='local')).rows)\n"
        "print([name for name in sys.modules if name.startswith(('rmqtool.kernels.load', 'rmqtool.kernels.scan'))])"
    )
    call = [sys.executable, "-c", script, str(golden("clean")), str(tmp_path / "out")]
    result = subprocess.run(call, capture_output=True, text=True, check=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == ("500\n[]\n", "")


def test_a_batch_outlives_the_mapping_it_was_read_from(tmp_path: Path) -> None:
    record = read(store_of(tmp_path, log_of(["A"] * 50)), views=True)  # every file was released
    bodies: list[Any] = [body for batch in record for body in batch.column("body").to_pylist()]
    assert len(bodies) == 50
    assert all(bodies)
