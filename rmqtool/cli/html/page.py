"""A page with everything about a store that can be seen at a glance: one file, without scripts and network."""

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from rmqtool.cli.html.charts import Series, draw_lines, lay_bars, stack_bars
from rmqtool.cli.html.log_map import COLOURS, LogMap
from rmqtool.cli.html.words import age_text, clean, moment_text, number_text, short_moment_text, span_text
from rmqtool.cli.read.show_steps import sentence
from rmqtool.cli.render.text import size_text
from rmqtool.cli.render.times import chosen_zone
from rmqtool.services.delays.delays import DelayLevel
from rmqtool.services.overview.overview import GroupSummary, LetterSummary, Overview, TopicSummary
from rmqtool.services.usage.contents import Contents
from rmqtool.store.check.advice.steps import Step
from rmqtool.store.check.codes.all import CODES
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.reading.reading import CodeFindings, Interpretation, severities_of
from rmqtool.version import __version__

MOST_ROWS = 100  # of a table
_MOST_BARS = 15
_LEAST_SKEW = 1.2
_STORE = re.compile(r"\bSTORE\b")
_SECTIONS = (
    ("state", "State"), ("log", "Map of the log"), ("check", "Findings"), ("traffic", "Traffic"), ("sizes", "Sizes"),
    ("topics", "Topics"), ("groups", "Groups"), ("delays", "Delays"), ("letters", "Dead letters"),
)  # fmt: skip


class _Table(NamedTuple):
    """A table; names of columns of numbers end with #."""

    names: tuple[str, ...]
    rows: list[list[str]]

    @property
    def heads(self) -> list[dict[str, Any]]:
        """The heads of its columns."""
        return [{"name": name.rstrip("#"), "right": name.endswith("#")} for name in self.names]


def render_page(overview: Overview, store: str, *, redacted: bool) -> str:
    """The page as HTML.

    Args:
        store: as the user names it, for commands to type.
        redacted: whether names were replaced.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("rmqtool.cli", "html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = number_text
    page = _Page(overview, store, redacted=redacted)
    style = environment.get_template("page.css").render()
    return environment.get_template("page.html.j2").render(page=page.values(), version=__version__, style=style)


class _Page:
    def __init__(self, overview: Overview, store: str, *, redacted: bool) -> None:
        self._overview, self._store, self._redacted = overview, store, redacted

    def values(self) -> dict[str, Any]:
        """What the template needs."""
        overview, info = self._overview, self._overview.info
        contents = overview.contents
        names = (
            {topic: number for number, (topic, *_sums) in enumerate(contents.topics)} if contents is not None else {}
        )
        coloured = [names[topic.topic] for topic in overview.topics[:COLOURS]]
        zone = chosen_zone()
        log = LogMap(overview, contents, coloured).section() if contents is not None else {"rows": []}
        footer = f"Times are {'UTC' if zone is None else 'of ' + str(zone)}."
        if self._redacted:
            footer += " Names of topics and groups were replaced, and hosts, paths and ids left out."
        return {
            "title": "RocketMQ store" if self._redacted else f"RocketMQ store {clean(info.store)}",
            "subtitle": clean(f"{info.version}: {info.versionReason}"),
            "sections": [{"id": name, "title": title} for name, title in _SECTIONS],
            "tiles": self._tiles(),
            "failures": [clean(failure) for failure in overview.failures],
            "map": log,
            "check": self._check(overview.reading),
            "traffic": _traffic(contents, coloured) if contents is not None and contents.topics else None,
            "sizes": _sizes(contents) if contents is not None and contents.topics else None,
            "topics": _topics(overview.topics),
            "skew": _skew(overview.topics),
            "groups": _groups(overview.groups, overview.time),
            "delays": _delays(overview.delays),
            "letters": _letters(overview.letters),
            "made": moment_text(overview.time),
            "footer": footer,
        }

    def _tiles(self) -> list[tuple[str, str]]:
        overview, info = self._overview, self._overview.info
        messages = sum(topic.messages for topic in overview.topics)
        tiles = [
            ("Messages in the log", number_text(messages)),
            ("Bytes of messages", size_text(sum(topic.bytes for topic in overview.topics))),
            ("First message", moment_text(info.firstStoreTimestamp) or "none"),
            ("Last message", moment_text(info.lastStoreTimestamp) or "none"),
            ("Topics with messages", number_text(len(overview.topics))),
            ("Groups that lag", number_text(sum(group.lag > 0 for group in overview.groups))),
            ("Messages delayed", number_text(sum(level.pending or 0 for level in overview.delays))),
            ("Dead letters", number_text(sum(letter.letters for letter in overview.letters))),
            ("Last stop", "unclean, or running" if info.abort else "clean"),
        ]
        if overview.reading is not None:
            counts = severities_of(overview.reading.causes)
            found = ", ".join(
                f"{number_text(count)} {name}{'s' if count != 1 else ''}" for name, count in counts.items()
            )
            tiles.append(("Findings", found or "none"))
        return tiles

    def _check(self, reading: Interpretation | None) -> dict[str, Any] | None:
        if reading is None:
            return None
        if reading.severity is None:
            verdict = "Nothing was found."
        else:
            verdict = ("" if reading.start else "Do not start a broker on this store. ") + reading.broker
        return {
            "severity": reading.severity or "",
            "verdict": clean(verdict),
            "lost": clean(reading.lost),
            "steps": [self._step(step) for step in reading.steps if not step.destroys],
            "destroying": [self._step(step) for step in reading.steps if step.destroys],
            "then": clean(reading.then),
            "codes": [self._code(code) for cause in reading.causes for code in cause.all],
            "all": clean(shlex.join(("rmqtool", "check", self._store, "--output", "ndjson"))),
        }

    def _code(self, code: CodeFindings) -> dict[str, Any]:
        """The findings of one code."""
        first = code.places[0]
        return {
            "severity": code.severity,
            "title": f"{code.code}: {CODES[code.code].title}",
            "count": number_text(code.count),
            "places": [clean(_where(place)) for place in code.places],
            "more": code.count - sum(place.count for place in code.places),
            "consequence": clean(sentence(first.consequence)),
            "cure": clean(_STORE.sub(lambda _match: self._store, first.fix)),
        }

    def _step(self, step: Step) -> dict[str, str]:
        words = [self._store if word == "STORE" else word for word in step.command]
        text = " ".join(sentence(_STORE.sub("this store", part)) for part in (step.does, step.costs) if part)
        return {"command": clean(shlex.join(words)), "text": clean(text)}


def _where(finding: Finding) -> str:
    parts = [finding.file + (f" at byte {finding.offset}" if finding.offset is not None else "")]
    if finding.topic is not None:
        parts.append(finding.topic + (f"/{finding.queueId}" if finding.queueId is not None else ""))
    if finding.queueOffset is not None:
        parts.append(f"queue offset {finding.queueOffset}")
    text = ", ".join(parts) + (f": {finding.actual}" if finding.actual else "")
    return text + (f" (expected: {finding.expected})" if finding.expected else "")


def _figure(svg: Any, name: str, table: _Table) -> dict[str, Any]:
    return {"svg": svg, "name": name, "heads": table.heads, "rows": table.rows}


def _traffic(contents: Contents, coloured: list[int]) -> dict[str, Any]:
    begin, intervals = contents.begin or 0, contents.messages_by_time.shape[1]
    times = [moment_text(begin + number * contents.span) for number in range(intervals)]
    below = [short_moment_text(begin + number * contents.span, contents.span) for number in range(intervals)]
    names = [clean(contents.topics[number][0]) for number in coloured]
    charts = []
    for what, by_time, text_of in (
        ("Messages", contents.messages_by_time, number_text),
        ("Bytes", contents.bytes_by_time, lambda value: size_text(int(value))),
    ):
        series = [Series(name, by_time[number].tolist()) for name, number in zip(names, coloured, strict=True)]
        if len(contents.topics) > len(coloured):
            others = by_time.sum(axis=0) - by_time[coloured].sum(axis=0)
            series.append(Series("other topics", others.tolist()))
        svg = stack_bars(
            f"{what} by store time and topic; the table below has the numbers", times, below, series, text_of
        )
        rows = [
            [time, *(text_of(each.values[number] or 0) for each in series), text_of(int(by_time[:, number].sum()))]
            for number, time in enumerate(times)
        ]
        names_of_columns = ("From", *(f"{each.name}#" for each in series), "All#")
        charts.append(_figure(svg, f"{what} by time", _Table(names_of_columns, rows)))
    return {"interval": span_text(contents.span), "outside": contents.outside, "charts": charts}


def _sizes(contents: Contents) -> list[dict[str, Any]]:
    labels = [f"up to {size_text(size)}" for size in contents.sizes]
    counts = [messages for messages, _bytes in contents.sizes.values()]
    svg = lay_bars(
        "Messages by size; the table below has the numbers", labels, [Series("messages", counts)], number_text
    )
    rows = [
        [label, number_text(messages), size_text(size)]
        for label, (messages, size) in zip(labels, contents.sizes.values(), strict=True)
    ]
    charts = [_figure(svg, "Messages by size", _Table(("Size", "Messages#", "Bytes#"), rows))]
    totals = zip(
        contents.bytes_by_time.sum(axis=0).tolist(), contents.messages_by_time.sum(axis=0).tolist(), strict=True
    )
    means = [size / messages if messages else None for size, messages in totals]
    begins = [(contents.begin or 0) + number * contents.span for number in range(len(means))]
    times, below = list(map(moment_text, begins)), [short_moment_text(begin, contents.span) for begin in begins]
    svg = draw_lines(
        "Mean size of messages by store time; the table below has the numbers", times, below,
        [Series("mean size", means)], lambda value: size_text(int(value)),
    )  # fmt: skip
    rows = [[time, size_text(int(mean)) if mean is not None else ""] for time, mean in zip(times, means, strict=True)]
    return [*charts, _figure(svg, "Mean size by time", _Table(("From", "Mean size#"), rows))]


def _topics(topics: list[TopicSummary]) -> dict[str, Any]:
    table = _Table(
        ("Topic", "What it is for", "Messages#", "Bytes#", "Share#", "Queues#"),
        [
            [
                clean(row.topic), clean(row.purpose or ""), number_text(row.messages), size_text(row.bytes),
                f"{row.share:.1%}", number_text(row.queues),
            ]
            for row in topics[:MOST_ROWS]
        ],
    )  # fmt: skip
    return {"heads": table.heads, "rows": table.rows, "hidden": max(len(topics) - MOST_ROWS, 0)}


def _skew(topics: list[TopicSummary]) -> dict[str, Any]:
    uneven = [(row.skew, row) for row in topics if row.skew is not None and row.skew >= _LEAST_SKEW]
    uneven = sorted(uneven, key=lambda each: -each[0])[:_MOST_BARS]
    svg = lay_bars(
        "Skew of the most uneven topics; the table below has the numbers", [clean(row.topic) for _skew, row in uneven],
        [Series("skew", [skew for skew, _row in uneven])], lambda value: f"{value:.2f}",
    )  # fmt: skip
    rows = [
        [clean(row.topic), number_text(row.queues), number_text(row.messages), number_text(row.largest), f"{skew:.2f}"]
        for skew, row in uneven
    ]
    table = _Table(("Topic", "Queues#", "Messages#", "In the fullest queue#", "Skew#"), rows)
    return {"svg": svg, "heads": table.heads, "rows": table.rows}


def _groups(groups: list[GroupSummary], now: int) -> dict[str, Any]:
    active = [row for row in groups if row.topics or row.lag or row.retry_lag or row.dead_letters or row.in_flight]
    table = _Table(
        ("Group", "Topics#", "Lag#", "Oldest unread", "Its age#", "Lag of retries#", "Dead letters#", "In flight#",
         "Wrong offsets#"),
        [
            [
                clean(row.group), number_text(row.topics), number_text(row.lag), moment_text(row.oldest),
                age_text(row.oldest, now), number_text(row.retry_lag), number_text(row.dead_letters),
                number_text(row.in_flight), number_text(row.problems),
            ]
            for row in active[:MOST_ROWS]
        ],
    )  # fmt: skip
    bars = [row for row in active[:_MOST_BARS] if row.lag]
    chart = _Table(("Group", "Lag#"), [[clean(row.group), number_text(row.lag)] for row in bars])
    svg = lay_bars(
        "Lag of the groups that lag most; the table below has the numbers", [clean(row.group) for row in bars],
        [Series("lag", [row.lag for row in bars])], number_text,
    )  # fmt: skip
    return {
        "svg": svg, "chart_heads": chart.heads, "chart_rows": chart.rows, "heads": table.heads, "rows": table.rows,
        "hidden": max(len(active) - MOST_ROWS, 0), "idle": len(groups) - len(active),
    }  # fmt: skip


def _delays(levels: list[DelayLevel]) -> dict[str, Any]:
    names = ["timer" if row.kind == "timer" else f"level {row.level}" for row in levels]
    table = _Table(
        ("Level", "Delay#", "Delivered#", "Waiting#", "Due#", "Next due", "Note"),
        [
            [
                name, span_text(row.delay) if row.delay is not None else "", _known(row.delivered), _known(row.pending),
                _known(row.due), moment_text(row.firstDeliverTimestamp), clean(row.note or ""),
            ]
            for name, row in zip(names, levels, strict=True)
        ],
    )  # fmt: skip
    waiting = [(name, row) for name, row in zip(names, levels, strict=True) if row.pending]
    due = Series("due", [row.due or 0 for _name, row in waiting])
    later = Series("later", [(row.pending or 0) - (row.due or 0) for _name, row in waiting])
    svg = lay_bars(
        "Messages that wait, by delay level; the table below has the numbers", [name for name, _row in waiting],
        [due, later], number_text,
    )  # fmt: skip
    chart = _Table(
        ("Level", "Due#", "Later#"),
        [[name, number_text(row.due or 0), number_text((row.pending or 0) - (row.due or 0))] for name, row in waiting],
    )
    return {
        "svg": svg, "chart_heads": chart.heads, "chart_rows": chart.rows, "heads": table.heads, "rows": table.rows,
    }  # fmt: skip


def _letters(letters: Sequence[LetterSummary]) -> dict[str, Any]:
    table = _Table(
        ("Group", "Sent to", "Letters#", "Failed deliveries#", "Cause", "First", "Last"),
        [
            [
                clean(row.group), clean(row.topic or ""), number_text(row.letters), number_text(row.failed), row.cause,
                moment_text(row.first), moment_text(row.last),
            ]
            for row in letters[:MOST_ROWS]
        ],
    )  # fmt: skip
    return {"heads": table.heads, "rows": table.rows, "hidden": max(len(letters) - MOST_ROWS, 0)}


def _known(value: int | None) -> str:
    return number_text(value) if value is not None else "not known"
