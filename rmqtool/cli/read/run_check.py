"""The work of ``check``."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqtool.cli.render.output import PEOPLE, TABLES, Column, Row, write_all, writer
from rmqtool.cli.render.text import MOST_COLUMNS, dump_json, note, plain, room_of
from rmqtool.rules.releases import Release
from rmqtool.store.check.advice.steps import Step, sentences
from rmqtool.store.check.codes.all import SEVERITIES
from rmqtool.store.check.common.findings import FINDING_FIELDS, Finding
from rmqtool.store.check.run import check_store, is_problem
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.words import command_line, with_store

if TYPE_CHECKING:
    from rmqtool.store.check.advice.advice import Situation


def _topic(row: Row) -> str | None:
    """A topic and its unusual kinds; its name already shows retry and system topics."""
    plain, _comma, more = (row["topicKind"] or "").partition(", ")
    return f"{row['topic']} ({more})" if plain == "normal" and more else row["topic"]


_COLUMNS = (
    Column("severity"),
    Column("code"),
    Column("file", wide=True),
    Column("offset", right=True),
    Column("topic", _topic, wide=True),
    Column("queue", lambda row: row["queueId"], right=True),
    Column("queueOffset", right=True),
    Column("count", right=True),
    Column("actual", wide=True),
    Column("consequence", wide=True),
)
_STORE = re.compile(r"\bSTORE\b")


class Check(Protocol):
    """A check of a store; see :func:`check_store`."""

    def __call__(
        self, layout: StoreLayout, *, release: Release | None = None, situation: "Situation | None" = None
    ) -> Iterator[Finding]:
        """Yield the findings."""


class CheckedStore(NamedTuple):
    """A store that is checked."""

    layout: StoreLayout
    store: str  # as the user names it
    name: str = ""  # in its container; empty for a store that was named itself


def run_check(
    stores: Sequence[CheckedStore],
    severity: str,
    limit_per_code: int | None,
    output: str,
    broker_conf: str | None = None,
    release: Release | None = None,
    check: Check = check_store,
) -> int:
    """``check`` of one store, or of those of a container: 0 when there is no error and no warning, else 1.

    Args:
        check: yields the findings.
    """
    worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
    if output == "text" and not (TABLES.columns or TABLES.wide):
        return max(_read(checked, worst, limit_per_code, broker_conf, release, check) for checked in stores)
    totals: Counter[str] = Counter()
    rows_of: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    problems = 0

    def rows() -> Iterator[dict[str, Any]]:
        for checked in stores:
            yield from rows_of_store(checked)

    def rows_of_store(checked: CheckedStore) -> Iterator[dict[str, Any]]:
        nonlocal problems
        for finding in check(checked.layout, release=release):
            if finding.severity not in worst:
                continue
            totals[finding.severity] += finding.count
            problems += is_problem(finding)
            rows_of[finding.code] += 1
            if limit_per_code is not None and rows_of[finding.code] > limit_per_code:
                hidden[finding.code] += finding.count
                continue
            row = finding.to_dict()
            row["file"] = os.path.normpath(os.path.join(checked.name, row["file"])) if checked.name else row["file"]
            steps = [_of_store(step, checked.store, broker_conf) for step in finding.steps]
            row["fix"] = _in_words(steps, checked.store)
            dicts = [step.to_dict() for step in steps]
            row["steps"] = dump_json(dicts) if output == "csv" else dicts
            yield {name: row[name] for name in FINDING_FIELDS}

    if output in PEOPLE:
        _table(rows(), output)
    else:
        write_all(writer(output, FINDING_FIELDS, _COLUMNS), rows())
    for code, count in sorted(hidden.items()):
        note(f"{code}: {count} more not shown (--limit-per-code)")
    counts = [f"{n} {name}{'s' if n != 1 else ''}" for name in SEVERITIES if (n := totals[name])]
    note(", ".join(counts) if counts else "clean: nothing found")
    return 1 if problems else 0


def _read(
    checked: CheckedStore,
    worst: tuple[str, ...],
    places: int | None,
    broker_conf: str | None,
    release: Release | None,
    check: Check,
) -> int:
    """Show the findings as one situation, on a terminal."""
    from rmqtool.cli.read.show_check import show_reading
    from rmqtool.store.check.advice.advice import Situation
    from rmqtool.store.check.reading.reading import PLACES, Interpreter

    reader, situation, problems = Interpreter(PLACES if places is None else places), Situation(), False
    for finding in check(checked.layout, release=release, situation=situation):
        if finding.severity in worst:
            reader.take(finding)
            problems |= is_problem(finding)
    reading = reader.reading(situation)
    reading = replace(reading, steps=tuple(_of_store(step, checked.store, broker_conf) for step in reading.steps))
    if checked.name:
        sys.stdout.write(f"{plain(checked.name)}:\n\n")
    show_reading(reading, situation.log, room_of(sys.stdout) or MOST_COLUMNS)
    return 1 if problems else 0


def _of_store(step: Step, store: str, broker_conf: str | None) -> Step:
    """A step with the store and configuration that were checked."""
    command = [store if word == "STORE" else word for word in step.command]
    if command[:1] == ["rmqtool"] and broker_conf is not None:
        command += ["--broker-conf", broker_conf]
    return replace(step, command=tuple(command))


def _in_words(steps: list[Step], store: str) -> str:
    """Steps as command lines to type."""
    return with_store(sentences(steps), store)


def _table(rows: Iterator[dict[str, Any]], form: str) -> None:
    """Show the findings as a table, with the advice for each code below."""
    first = next(rows, None)
    if first is None:
        return
    fixes: dict[str, list[str]] = {}

    def collect() -> Iterator[dict[str, Any]]:
        for row in (first, *rows):
            codes = fixes.setdefault(row["fix"], [])
            if row["code"] not in codes:
                codes.append(row["code"])
            yield row

    write_all(writer(form, FINDING_FIELDS, _COLUMNS), collect())
    # the advice goes where the report goes, perhaps into a file or a mail
    advice = [f"{', '.join(codes)}: {fix}" for fix, codes in fixes.items()]
    for line in (*advice, f"what a code means: {command_line('explain', 'CODE')}"):
        sys.stdout.write(plain(line) + "\n")
    sys.stdout.flush()
