"""Charts as inline SVG, whose colours are those of the page around them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

_WIDTH, _HEIGHT = 900, 280
_LABELS = 6  # times that are written below a chart
_INK, _MUTED = "var(--ink)", "var(--muted)"


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of a chart, with a value for each label."""

    name: str
    values: Sequence[float | None]


def stack_bars(
    label: str, labels: Sequence[str], below: Sequence[str], series: Sequence[Series], text_of: Callable[[float], str]
) -> Markup | None:
    """Bars over time, one colour on another; None if there is nothing to show.

    Args:
        label: what the chart shows, for screen readers.
        labels: times.
        below: the same in short, for where there is room.
        text_of: a value as text.
    """
    chart = _library().StackedBar(
        **_plain(text_of), width=_WIDTH, height=_HEIGHT, spacing=8, margin=12, legend_at_bottom=True,
        legend_at_bottom_columns=4, truncate_legend=26, show_legend=len(series) > 1,
    )  # fmt: skip
    chart.x_labels = _spread(below)
    return _drawn(chart, label, labels, series, text_of)


def draw_lines(
    label: str, labels: Sequence[str], below: Sequence[str], series: Sequence[Series], text_of: Callable[[float], str]
) -> Markup | None:
    """A line over time; the arguments are those of :func:`stack_bars`."""
    chart = _library().Line(
        **_plain(text_of), width=_WIDTH, height=_HEIGHT, spacing=8, margin=12, legend_at_bottom=True,
        show_legend=len(series) > 1, dots_size=2, include_x_axis=True,
        allow_interruptions=True,
    )  # fmt: skip
    chart.x_labels = _spread(below)
    return _drawn(chart, label, labels, series, text_of)


def lay_bars(
    label: str, labels: Sequence[str], series: Sequence[Series], text_of: Callable[[float], str]
) -> Markup | None:
    """Bars from left to right, one below another; the arguments are those of :func:`stack_bars`."""
    chart = _library().HorizontalStackedBar(
        **_plain(text_of), width=_WIDTH, height=70 + 26 * len(labels), spacing=6, margin=12, legend_at_bottom=True,
        show_legend=len(series) > 1, x_labels_major_count=_LABELS,
    )  # fmt: skip
    # pygal draws the first at the bottom
    chart.x_labels = [*reversed(labels)]
    return _drawn(
        chart, label, [*reversed(labels)], [Series(each.name, [*reversed(each.values)]) for each in series], text_of
    )


def _spread(labels: Sequence[str]) -> list[str]:
    """A few of the labels, at equal distances; the others are empty."""
    step = -(-len(labels) // _LABELS)
    return ["" if at % step else label for at, label in enumerate(labels)]


@cache
def _library() -> Any:
    import pygal

    # its finder of plug-ins would slow down every later import, and warns of itself
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]
    return pygal


def _plain(text_of: Callable[[float], str]) -> dict[str, Any]:
    from pygal.style import Style

    style = Style(
        background="transparent", plot_background="transparent", foreground=_INK, foreground_strong=_INK,
        foreground_subtle=_MUTED,
    )  # fmt: skip
    return {
        "style": style, "js": (), "css": (), "no_data_text": "", "disable_xml_declaration": True,
        "value_formatter": lambda value: text_of(value or 0), "pretty_print": False, "truncate_label": 40,
    }  # fmt: skip


def _drawn(
    chart: Any, label: str, labels: Sequence[str], series: Sequence[Series], text_of: Callable[[float], str]
) -> Markup | None:
    if not any(any(each.values) for each in series):
        return None
    for each in series:
        chart.add(
            each.name,
            [
                {"value": value, "label": f"{at}, {each.name}: {text_of(value)}"} if value is not None else None
                for at, value in zip(labels, each.values, strict=True)
            ],
        )
    return _inline(chart.render(), label)


def _inline(svg: bytes, label: str) -> Markup:
    """SVG for an HTML page: without styles, ids, and what needs a script; descriptions become tooltips."""
    root = ElementTree.fromstring(svg)
    for parent in [*root.iter()]:
        for child in [*parent]:
            name = child.tag.rpartition("}")[2]
            kind = child.get("class", "")
            if name in ("style", "defs", "script") or kind == "titles" or "-overlay" in kind:
                parent.remove(child)
            elif name == "desc":
                if kind == "label":
                    child.tag, child.attrib = "title", {}
                else:
                    parent.remove(child)
            elif name == "title" and (parent is root or parent.get("class") == "guides"):
                parent.remove(child)  # the name of the library, and numbers that are written beside
            elif name == "rect" and 0.0 in (float(child.get("width", 1)), float(child.get("height", 1))):
                parent.remove(child)  # of a value of 0
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib.pop("id", None)
        for name in ("x", "y", "width", "height"):
            if name in element.attrib:
                element.set(name, f"{float(element.attrib[name]):.4g}")
    root.set("class", "chart")
    root.set("role", "img")
    root.set("aria-label", label)
    return Markup(ElementTree.tostring(root, encoding="unicode"))
