"""Invalid input costs a served store a line in its log, and does not affect other clients."""

from pathlib import Path

from tests.interop.crowd import crowd
from tests.interop.hostile import attack


def test_hostile_frames_cost_a_line_each_at_most(tmp_path: Path) -> None:
    met = attack(tmp_path / "store", 3000)
    assert met.code == 0
    assert 300 < len(met.lines) <= 3000 + 10  # some cost none; and those of its own
    assert not [line for line in met.lines if "Traceback" in line or line.startswith(" ")]
    assert met.end - met.begin < 30_000


def test_without_rights_nothing_is_written(tmp_path: Path) -> None:
    met = attack(tmp_path / "store", 1500, accounts=True)
    assert met.code == 0
    assert not met.queues
    assert not [line for line in met.lines if "Traceback" in line or line.startswith(" ")]


def test_many_connections_and_clients_that_never_read(tmp_path: Path) -> None:
    stood = crowd(tmp_path / "store", 600, 8)
    assert stood.code == 0
    assert len(stood.lines) == 2  # it came, and it went
    assert stood.crowded - stood.alone < 60_000
