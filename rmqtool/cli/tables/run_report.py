"""``report`` behind its options."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from rmqtool.analytics.sql.query import answer
from rmqtool.analytics.sql.ready import READY
from rmqtool.cli.shell.choice import limited, matches, no_match
from rmqtool.cli.shell.output import Column, write_all, writer
from rmqtool.cli.shell.times import parse_time
from rmqtool.cli.tables.run_sql import columns_of, request, rows_of, say, spark_process

_WIDTH = 20  # cells of the longest bar
_WIDE = ("topic", "group", "keys", "chain")


def run_report(
    name: str,
    store: str,
    *,
    output: str,
    topics: list[str] | None = None,
    groups: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int | None = None,
    broker_conf: str | None = None,
) -> int:
    """A report's rows: 0, or 1 when damage was met, duplicates were found, or nothing that was asked for."""
    ready = READY[name]
    asked = request(
        store,
        broker_conf,
        topic=",".join(topics) if topics else None,
        since=str(parse_time(since)) if since else None,
        until=str(parse_time(until)) if until else None,
    )
    with spark_process(), answer(asked, ready.sql) as found, closing(rows_of(found, output)) as every:
        rows: Iterable[dict[str, Any]] = (
            row for row in every if matches(row.get("topic"), topics) and matches(row.get("group"), groups)
        )
        rows = limited(iter(rows), limit, every)
        columns = columns_of(found, _WIDE)
        if output == "table" and ready.bar is not None:
            rows = _drawn(list(rows), ready.bar)
            columns.append(Column("bar"))
        count = write_all(writer(output, found.columns, columns), rows)
        code = say(found)
    if name.startswith("duplicates"):
        return 1 if count else code
    return no_match(count, code, topic=topics, group=groups, since=since, until=until)


def _drawn(rows: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """Rows with a bar for a column, against the largest of them; what is more than nothing shows."""
    most = max((row[name] for row in rows), default=0)
    for row in rows:
        cells = round(_WIDTH * row[name] / most) if most else 0
        yield {**row, "bar": "█" * max(cells, row[name] > 0)}
