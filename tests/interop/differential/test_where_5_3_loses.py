"""Where 5.3.3 loses messages or does not start, ``exactly`` predicts it; without it nothing is lost, and it starts."""

import shutil
from pathlib import Path
from random import Random

import pytest

from rmqtool.store.layout.paths import UNIT, StoreLayout
from rmqtool.store.recovery.command import plan, recover
from tests.interop.differential.bases import plain_messages, sizes
from tests.interop.differential.compare import engine_entries
from tests.interop.engine import Engine
from tests.store.helpers import cut_queues, entries_of

pytestmark = pytest.mark.interop

CONFIG = sizes(16384, 20, 61, 900)


@pytest.fixture
def layout(engine_5: Engine, tmp_path: Path) -> StoreLayout:
    """A store written and cleanly stopped by 5.3.3, with queues of several files."""
    written = engine_5.write(tmp_path / "store", plain_messages(Random(5), 300, 2, 3), CONFIG)
    assert all(row["status"] == "PUT_OK" for row in written["results"])
    return layout_of(tmp_path / "store")


def layout_of(store: Path) -> StoreLayout:
    from rmqtool.store.layout.broker_conf import BrokerConf

    return StoreLayout(str(store), BrokerConf({name: str(value) for name, value in CONFIG.items()}))


@pytest.mark.parametrize("missing", [1, 2, 40, 300])
def test_the_first_message_that_no_queue_has(
    missing: int, layout: StoreLayout, engine_5: Engine, tmp_path: Path
) -> None:
    intact = entries_of(layout)
    first = cut_queues(layout, missing)[0]
    judged = shutil.copytree(layout.root, tmp_path / "judged")
    answer = engine_entries(engine_5.open(judged, CONFIG))
    assert len(answer) == len(intact) - (missing < 300)

    exact = shutil.copytree(layout.root, tmp_path / "exact")
    recover(layout_of(exact), exactly=True)
    assert entries_of(layout_of(exact)) == answer

    report = recover(layout)
    assert report.engine == "5.3"
    assert any(f"at {first.physical_offset} is the first" in warning for warning in report.warnings) == (missing < 300)
    assert entries_of(layout_of(Path(layout.root))) == intact
    assert engine_entries(engine_5.open(Path(layout.root), CONFIG)) == intact


def test_a_queue_with_an_empty_last_file(layout: StoreLayout, engine_5: Engine, tmp_path: Path) -> None:
    (last,) = cut_queues(layout, 1)
    other = next(path for path in Path(layout.path("consumequeue")).glob("*/*") if path.name != str(last.queue_id))
    max(other.iterdir()).write_bytes(bytes(20 * UNIT))
    answer = engine_5.open(shutil.copytree(layout.root, tmp_path / "judged"), CONFIG)
    assert not answer["loadOk"]
    assert not plan(layout, exactly=True).loadOk
    assert recover(layout).loadOk
    assert engine_5.open(Path(layout.root), CONFIG)["loadOk"]
