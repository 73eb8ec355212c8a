"""``report`` behind its options."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from rmqtool.analytics.source.read import Counters
from rmqtool.analytics.sql.native import is_small, native_rows
from rmqtool.analytics.sql.ready import READY
from rmqtool.cli.framework.choice import limited, matches, no_match
from rmqtool.cli.render.output import PEOPLE, Column, write_all, writer
from rmqtool.cli.render.times import parse_time
from rmqtool.cli.tables.asked import plain_row, request, say

_WIDTH = 20  # cells of the longest bar
_NUMBERS = {
    "messages", "bytes", "atMost", "smallest", "largest", "copies", "firstPhysicalOffset", "lastPhysicalOffset",
    "topics", "connections", "queues", "stored", "lag", "queueId", "queueOffset", "physicalOffset", "retries",
}  # fmt: skip
_WIDE = ("topic", "group", "keys", "chain")


def run_report(
    name: str,
    store: str,
    *,
    output: str,
    runner: str = "auto",
    topics: list[str] | None = None,
    groups: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int | None = None,
    broker_conf: str | None = None,
) -> int:
    """A report's rows: 0, or 1 when damage was met, duplicates were found, or nothing that was asked for.

    Args:
        runner: ``spark``, ``local`` for this process, or ``auto`` for this one where the stores are small.
    """
    ready = READY[name]
    asked = request(
        store,
        broker_conf,
        topics or (),
        tier="messages" in ready.columns,
        topic=",".join(topics) if topics else None,
        since=str(parse_time(since)) if since else None,
        until=str(parse_time(until)) if until else None,
    )
    shape = _Shape(name, output, topics, groups, limit)
    if runner == "local" or (runner == "auto" and is_small(asked)):
        counters = Counters()
        found = native_rows(name, asked, counters)
        every = (plain_row(row.items(), output) for row in found)
        columns = [Column(each, right=each in _NUMBERS, wide=each in _WIDE) for each in ready.names]
        count = shape.write(every, list(ready.names), columns)
        code = say(counters)
    else:
        from rmqtool.analytics.sql.query import answer
        from rmqtool.cli.tables.run_sql import columns_of, rows_of, spark_process

        with spark_process(), answer(asked, ready.sql) as answered, closing(rows_of(answered, output)) as rows:
            count = shape.write(rows, answered.columns, columns_of(answered, _WIDE))
            code = say(answered.counters)
    if name.startswith("duplicates"):
        return 1 if count else code
    return no_match(count, code, topic=topics, group=groups, since=since, until=until)


class _Shape(NamedTuple):
    """How the rows of a report are shown."""

    name: str
    output: str
    topics: list[str] | None
    groups: list[str] | None
    limit: int | None

    def write(self, every: Generator[dict[str, Any], None, None], names: list[str], columns: list[Column]) -> int:
        """Write those that were asked for; their number."""
        rows: Iterable[dict[str, Any]] = (
            row for row in every if matches(row.get("topic"), self.topics) and matches(row.get("group"), self.groups)
        )
        rows = limited(iter(rows), self.limit, every)
        bar = READY[self.name].bar
        if self.output in PEOPLE and bar is not None:
            rows = _drawn(list(rows), bar)
            columns.append(Column("bar"))
        return write_all(writer(self.output, names, columns), rows)


def _drawn(rows: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """Rows with a bar for a column, against the largest of them; what is more than nothing shows."""
    most = max((row[name] for row in rows), default=0)
    for row in rows:
        cells = round(_WIDTH * row[name] / most) if most else 0
        yield {**row, "bar": "█" * max(cells, row[name] > 0)}
