"""Live commands at a terminal of 80 columns: no line is longer, and what is left out of a table is named."""

import json

import pytest

from tests.admin.test_failures import WORDS
from tests.admin.test_failures_apart import NAME_SERVERS, NEWER, newer  # noqa: F401 - a fixture
from tests.amounts import whole_by_turns
from tests.cli.running import rmqtool
from tests.cli.terminal import at_terminal, plain
from tests.interop.serving import Serving

SHOWN = {**WORDS, **NEWER, **NAME_SERVERS}
del SHOWN["dlq export"]  # whole messages, one JSON object a line
BESIDES = {"rebalance plan": {"moves"}}  # nothing was held before


@whole_by_turns(4, 9)
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_too_long(name: str, newer: Serving) -> None:  # noqa: F811
    args = (*name.split(), f"rocketmq://{newer.namesrv}", *SHOWN[name])
    code, output = at_terminal(*args)
    assert "Traceback" not in output
    assert code in (0, 1), output
    lines = plain(output).splitlines()
    assert max(map(len, lines)) <= 80, output
    result = rmqtool(*args, "-o", "ndjson")
    row = json.loads(result.out.partition("\n")[0] or "{}")
    left_out = [line for line in lines if line.startswith("not shown: ")]
    header = next((line for line in lines if set(line.split()) <= row.keys() and line.strip()), None)
    allowed = BESIDES.get(name, set())
    if header is not None and len(header.split()) > 2 and not left_out:  # a table, with all that machines get
        columns = set(header.split())
        assert not [key for key, value in row.items() if value not in (None, [], {}) and key not in columns | allowed]
