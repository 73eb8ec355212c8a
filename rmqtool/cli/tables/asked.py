"""Shared by ``sql`` and ``report``, whichever runner answers: stores, values, damage."""

from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from rmqtool.analytics.source.plan import ReadRequest, reads_tier, request_of
from rmqtool.analytics.source.read import Counters
from rmqtool.analytics.table.schema import TIME_COLUMNS
from rmqtool.cli.framework.opening import open_to_read
from rmqtool.cli.render.output import PEOPLE, Column, rank_in
from rmqtool.cli.render.text import note
from rmqtool.contract import render_body
from rmqtool.errors import RmqError
from rmqtool.services.lookup.configs import FILES, load_config
from rmqtool.store.layout.paths import QUEUE_KINDS, StoreLayout
from rmqtool.store.roles.elsewhere import log_elsewhere, messages_elsewhere
from rmqtool.words import command_line, counted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# columns that are dropped first on a narrow terminal; the last two only if there is a lag
_SPARE = (
    "configured", "order", "perm", "writeQueueNums", "readQueueNums", "slot", "timeDiff", "previous", "minOffset",
    "storeSize", "maxOffset", "brokerOffset", "consumerOffset",
)  # fmt: skip
_BESIDE_LAG = _SPARE[-2:]


class Answered(Protocol):
    """The result of a query, whichever runner it comes from."""

    @property
    def columns(self) -> list[str]:
        """Column names, each once."""

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each column has numbers."""

    def rows(self) -> Generator[tuple[Any, ...], None, None]:
        """All rows."""


def request(
    store: str,
    broker_conf: str | None,
    topics: Collection[str] = (),
    *,
    tables: Collection[str],
    tier: bool = True,
    **options: str | None,
) -> ReadRequest:
    """The request for the stores of a command line and further options of the data source; notes what is elsewhere.

    Args:
        topics: topics of the answer, for notes about the tier; all by default.
        tables: those that are asked for; the command that runs then names what of them cannot be read.
        tier: say how many messages are in the tier alone.
    """
    options_of_source = {"path": store, "brokerConf": broker_conf, **options}
    asked = request_of({name: value for name, value in options_of_source.items() if value is not None})
    for layout in (store.layout() for store in asked.stores):
        elsewhere = (
            messages_elsewhere(
                layout,
                lambda topic, _queue_id: not topics or topic in topics,
                "not counted",
                reads=reads_tier(asked.wanted.choice),
            )
            if tier
            else log_elsewhere(layout, "not counted")
        )
        for warning in elsewhere:
            note(f"warning: {warning}")
    for named in asked.stores:
        if named.uri is None:
            _look_for_unreadable(open_to_read(named.root, named.broker_conf), tables)
    stores = (replace(named, skips_unreadable=named.uri is None) for named in asked.stores)
    return replace(asked, stores=tuple(stores))


def _look_for_unreadable(layout: StoreLayout, tables: Collection[str]) -> None:
    """Have a layout record what of some tables cannot be read, and note where a ``.bak`` is read instead."""
    with suppress(RmqError):  # which the tables raise themselves
        if "queues" in tables or "offsets" in tables:
            for kind in QUEUE_KINDS:
                for _topic, _queue_id, path in layout.each_queue_dir(kind):
                    layout.files_in(path)
        if "offsets" in tables or "topics" in tables:
            for name in ("topics.json", "subscriptionGroup.json"):
                layout.small("config", name)
            for name in FILES:
                load_config(layout, name, lambda text: note(f"warning: {text}"))


def plain_row(values: Iterable[tuple[str, Any]], output: str) -> dict[str, Any]:
    """A row for an output form; for programs the times of a message are ms, as in every other command."""
    if output in PEOPLE:
        return {name: plain_value(value) for name, value in values}
    return {
        name: _millis(value) if name in TIME_COLUMNS and isinstance(value, datetime) else plain_value(value)
        for name, value in values
    }


def _millis(value: datetime) -> int:
    return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def plain_value(value: Any) -> Any:
    """A value from Spark for JSON: times in ISO 8601, bytes as text if UTF-8, else base64."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return render_body(bytes(value), "auto")[0]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # JSON has no NaN or infinity
    if isinstance(value, dict):
        return {str(plain_value(name)): plain_value(inner) for name, inner in value.items()}
    if hasattr(value, "asDict"):
        return {name: plain_value(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def say(counters: Counters) -> int:
    """Report damage on stderr; returns the exit code."""
    if counters.damaged:
        where = f"{counted(counters.damagedBytes, 'byte')} in {counted(counters.damaged, 'range')} of the log"
        note(
            f"damage: {where} without the record they should hold; {command_line('check')}, or the table findings, "
            "says where"
        )
    if counters.bytesRead:
        fetched = f", {counters.bytesFetched} fetched" if counters.bytesFetched else ""
        note(f"{counters.bytesRead} bytes of the store were read{fetched}")
    return 1 if counters.damaged else 0


def columns_of(found: Answered, wide: Sequence[str] = ()) -> list[Column]:
    """Columns of a table for people; numbers to the right."""
    return [
        Column(
            name,
            right=is_number,
            wide=name in wide,
            rank=rank_in(_SPARE, name) if name not in _BESIDE_LAG or "lag" in found.columns else 0,
        )
        for name, is_number in zip(found.columns, found.are_numbers, strict=True)
    ]


def rows_of(found: Answered, output: str) -> Generator[dict[str, Any], None, None]:
    """Rows for an output form."""
    names = found.columns
    with closing(found.rows()) as rows:  # on a broken pipe Spark must stop before this process ends
        for row in rows:
            yield plain_row(zip(names, row, strict=True), output)
