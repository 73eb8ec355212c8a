"""Releases: their names, and no code outside their table compares them by name."""

import re
from pathlib import Path

import pytest

from formats.versions import VERSIONS, Version
from rmqtool.rules.releases import RELEASES, V4_9, V5_3, V5_4, V5_5, V5_5_1, release_named
from rmqtool.store.config.settings import settings_of
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.releases.rules import rules_for

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("text", "release"), [
    ("4.9", V4_9), ("4", V4_9), ("4.9.8", V4_9), ("5.3", V5_3), ("5", V5_3), ("5.3.3", V5_3),
    ("5.5", V5_5), ("5.5.0", V5_5), ("5.4", V5_4), ("5.4.0", V5_4), ("5.5.1", V5_5_1),
])  # fmt: skip
def test_a_release_goes_by_its_line_its_major_version_and_its_version(text: str, release: object) -> None:
    assert release_named(text) is release


@pytest.mark.parametrize("text", ["5.6", "", "auto", "V5_3_3", "5.3.2"])
def test_what_is_no_release_is_refused_with_those_that_are(text: str) -> None:
    *others, last = map(re.escape, RELEASES)
    with pytest.raises(ValueError, match=f"give {', '.join(others)} or {last}$"):
        release_named(text)


def test_the_table_is_in_the_order_of_age() -> None:
    assert tuple(release.version for release in RELEASES.values()) == VERSIONS


def test_no_code_compares_releases_by_their_text() -> None:
    """A further release is just another object in `rmqtool.rules.releases`."""
    named = re.compile(f'"(?:{"|".join(map(re.escape, RELEASES))})"')
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in ("formats", "rmqtool")
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if named.search(line)
    ]
    assert places == []


def test_a_further_release_does_what_the_one_before_it_does(tmp_path: Path) -> None:
    """It takes a line in `formats.versions` and an object in `rmqtool.rules.releases`."""
    later = V5_5._replace(version=Version(6, 0), full_name="V6_0_0")
    (tmp_path / "commitlog").mkdir()
    layout = StoreLayout(str(tmp_path))
    rules = rules_for(layout, later).rules
    assert type(rules) is type(rules_for(layout, V5_5).rules)
    assert rules.release is later
    assert settings_of(later) == settings_of(V5_5)
