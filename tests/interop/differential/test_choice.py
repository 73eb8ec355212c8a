"""Stores of the engines are told apart, and a healthy store is left alone by the rules of either release."""

import pytest

from rmqtool.rules.releases import RELEASES
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan
from tests.interop.differential.bases import Base

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def test_stores_of_both_releases(stores_of_4: list[Base], stores_of_5: list[Base]) -> None:
    for base in stores_of_4 + stores_of_5:
        layout = StoreLayout(str(base.path), base.conf)
        report = plan(layout)
        assert report.engine == base.name[:3], base.name
        assert report.abort == base.name.endswith("-killed")
        for engine in ("5.3",) if "long-topics" in base.name else ("4.9", "5.3"):
            for exactly in (False, True):
                report = plan(layout, release=RELEASES[engine], exactly=exactly)
                assert report.clean == (not report.abort), (base.name, report.actions)
