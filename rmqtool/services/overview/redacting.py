"""Remove names, hosts, paths and ids from an overview, so that it can be given away."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rmqtool.services.evidence.masking import Mask, names_in
from rmqtool.services.overview.overview import Overview
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.layout.paths import StoreLayout

_KEPT = frozenset({"code", "severity", "kind"})  # fields with words of this program


class _Numbered(Mask):
    """A mask that replaces names by short ones, numbered in order of appearance."""

    def value(self, data: bytes | str, what: str) -> str:
        """A short name for a name; for anything else its length and hash."""
        if what != "names":
            return super().value(data, what)
        return self._numbers.setdefault(data, f"name-{len(self._numbers) + 1}")

    def __init__(self, root: str, names: set[str]) -> None:
        super().__init__(root, names, hide_names=True)
        self._numbers: dict[bytes | str, str] = {}


def redact(overview: Overview, layout: StoreLayout) -> Overview:
    """The same overview with short names in place of topics and groups, and without hosts, paths and ids.

    Topics of the broker itself keep their names; numbers and times stay as they are.
    """
    names = names_in(layout, overview.info, _findings(overview))
    names |= {topic.topic for topic in overview.topics} | {group.group for group in overview.groups}
    names |= {letter.topic for letter in overview.letters if letter.topic} | {each.group for each in overview.letters}
    masked: Overview = _mask_texts(overview, _Numbered(layout.root, names))
    return masked


def _findings(overview: Overview) -> Iterable[Finding]:
    if overview.reading is not None:
        for cause in overview.reading.causes:
            for findings in cause.all:
                yield from findings.places


def _mask_texts(value: Any, mask: Mask) -> Any:
    """A value with all texts in it masked."""
    if isinstance(value, str):
        return mask.text(mask.name(value))
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.init and each.name not in _KEPT]
        return replace(value, **{name: _mask_texts(getattr(value, name), mask) for name in names})
    if isinstance(value, tuple):
        parts = [_mask_texts(each, mask) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_mask_texts(each, mask) for each in value]
    if isinstance(value, dict):
        return {_mask_texts(key, mask): _mask_texts(each, mask) for key, each in value.items()}
    return value
