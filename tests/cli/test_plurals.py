"""One of something is not called several."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = "messages|entries|queues|files|records|rows|topics|groups|offsets|brokers|fillers|lines"
BARE = re.compile(rf"f\".*\{{(?!counted)([^{{}}]*)\}} (?:{WORDS})\b")
# bounds, and numbers that are never 1 where they are named
SEVERAL = {
    "_MOST_FILES", "MOST_BROKERS", "MOST_ROWS", "_MOST_QUEUES", "_OPEN_FILES", "soft", "most", "total", "entries",
    "names", "len(value)", "len(page)", "len(moves)", "len(groups)", "len(paths)", "queues:,", "messages:,", "files",
}  # fmt: skip
FOR_PROGRAMMERS = ("formats/", "rmqtool/kernels/", "rmqtool/client/cluster/routes.py", "rmqtool/server/broker/")


def test_numbers_are_counted() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in sorted((ROOT / "rmqtool").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(FOR_PROGRAMMERS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := BARE.search(line)) is not None and match[1] not in SEVERAL
    ]
    assert not bare, "use rmqtool.words.counted"
