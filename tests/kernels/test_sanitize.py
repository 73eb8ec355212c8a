"""Nothing is read or written outside buffers, and there is no undefined behaviour."""

from pathlib import Path

import pytest

from tests.amounts import ALL, only_in_all, some
from tests.kernels.sanitize import Sanitized, runtime

pytestmark = [
    pytest.mark.slow,
    only_in_all,
    pytest.mark.skipif(runtime() is None, reason="the compiler has no AddressSanitizer"),
]


@pytest.mark.parametrize("baseline", some([False], [False, True]), ids=some(["best"], ["best", "baseline"]))
def test_sanitizers_have_nothing_to_report(tmp_path: Path, baseline: bool) -> None:
    copy = Sanitized(tmp_path, baseline=baseline)
    control = copy.control()
    assert control.returncode != 0
    assert "AddressSanitizer" in control.stderr
    runs = [copy.golden("crash"), copy.fuzz(2, some(16, 12), every_base=ALL)]
    if ALL:
        runs.append(copy.tests())
    for done in runs:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
