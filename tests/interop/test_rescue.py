"""The manual's rescue example: its Java consumer prints what the page shows."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.interop import broker, engine
from tests.interop.serving import Serving
from tests.readme import MANUAL, ROOT

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("broker-5.3.3")]
_SECTION = re.compile(r"^## The broker is gone.*?(?=^## )", re.MULTILINE | re.DOTALL)


@by_turns(23)
def test_a_java_consumer_drains_a_rescued_store(tmp_path: Path) -> None:
    if reason := broker.available("5.3.3"):
        pytest.skip(reason)
    match = _SECTION.search((MANUAL / "emergencies.md").read_text(encoding="utf-8"))
    assert match is not None
    program, printed = (re.findall(rf"^```{kind}\n(.*?)^```$", match[0], re.M | re.S)[-1] for kind in ("java", "text"))
    (tmp_path / "Drain.java").write_text(program)
    store = tmp_path / "rescued"
    shutil.copytree(ROOT / "examples" / "store", store)
    command = [engine._java_tool("java"), f"-Duser.home={tmp_path}", "-cp", broker._classpath("5.3.3"), "Drain.java"]
    with Serving(store, "--read-only") as serving:
        result = subprocess.run(
            [*command, serving.namesrv, "Orders"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
        )
        lines = [line for line in result.stdout.splitlines() if line.startswith("Orders ")]
        drained = sorted(lines, key=lambda line: [int(word) for word in line.split()[1:3]])
        assert serving.end()[0] == 0
    offsets = (tmp_path / "rescued.served-offsets.csv").read_text().splitlines()
    assert [str(len(drained)), *drained[:4], *offsets] == printed.splitlines()
