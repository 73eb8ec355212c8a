"""Half messages across kills of ``serve`` are delivered once. Real brokers deliver each again after each kill, see
``python -m tests.interop.transaction_kills``.
"""

import asyncio
from pathlib import Path

import pytest

from tests.amounts import by_turns, every
from tests.interop.transaction_kills import go_through

pytestmark = pytest.mark.slow


@by_turns(13)
@pytest.mark.parametrize("engine", every(2, ["4.9", "5.3"]))
def test_each_half_message_is_delivered_once(engine: str, tmp_path: Path) -> None:
    result = asyncio.run(go_through(tmp_path / "store", f"serve-{engine}", messages=20, kills=3))
    assert sorted(result.delivered.values()) == [1] * 20
    assert result.halves == 40
