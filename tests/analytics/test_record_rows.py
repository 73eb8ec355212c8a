"""Rows of a log range if compiled code misses a record that plain code finds."""

from typing import Any

import pytest

from rmqtool.analytics.ranges import record_rows
from rmqtool.analytics.ranges.record_rows import walk_rows
from rmqtool.kernels.scan import Rows, Walker
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from tests.conftest import Unpacked


def walked(store: str) -> list[Any]:
    """Each record and each damage of a log's files."""
    result: list[Any] = []
    for file in CommitLog(StoreLayout(store)).segments:
        for item in walk_rows(file, 0, file.size, last=True):
            # copies: the next step writes over the rows
            result += zip(*(column.tolist() for column in item), strict=True) if isinstance(item, Rows) else [item[1:]]
    return result


@pytest.mark.parametrize("case", ["clean", "torn-last-record"])
def test_what_compiled_code_does_not_know_is_read_plainly(
    case: str, golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = walked(str(golden(case)))
    assert len(expected) > 50
    asked = []

    class Blind(Walker):
        """Finds only records that begin at a multiple of three."""

        def walk(self, at: int, limit: int, stop: int | None = None) -> tuple[Rows, int]:
            asked.append(at)
            return (Rows(*self.table[:, :0]), at) if at % 3 else super().walk(at, limit, at + 1)

    monkeypatch.setattr(record_rows, "Walker", Blind)
    assert walked(str(golden(case))) == expected
    assert any(at % 3 for at in asked)
