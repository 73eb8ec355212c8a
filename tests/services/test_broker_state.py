"""When the tables of topics and groups are written, and by which rules."""

from pathlib import Path

import pytest

from formats.config.files import SubscriptionGroups, Topics
from formats.topics import RETRY_PREFIX
from rmqtool import Store
from rmqtool.rules.releases import RELEASES, V4_9, Release
from rmqtool.services.open_store.broker_state import BrokerState
from tests.conftest import Unpacked
from tests.services.live import Lab

RETRY = RETRY_PREFIX + "G"


def topics(lab: Lab) -> set[str]:
    path = lab.path / "config" / "topics.json"
    return set(Topics.parse(path.read_bytes()).topics) if path.exists() else set()


def groups(lab: Lab) -> set[str]:
    path = lab.path / "config" / "subscriptionGroup.json"
    return set(SubscriptionGroups.parse(path.read_bytes()).groups) if path.exists() else set()


def test_what_members_make_again_is_written_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.state.at_once = True
    assert lab.state.ensure_group("G") is not None
    lab.state.ensure_topic(RETRY, later=True)
    assert (topics(lab), groups(lab)) == (set(), set())
    lab.state.persist()
    assert (topics(lab), groups(lab)) == ({RETRY}, {"G"})


def test_a_topic_is_written_before_it_gets_a_message(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.state.at_once = True
    lab.state.ensure_topic(RETRY, later=True)
    lab.state.ensure_topic(RETRY)
    assert topics(lab) == {RETRY}
    lab.state.ensure_topic("Orders")
    assert topics(lab) == {RETRY, "Orders"}


@pytest.mark.parametrize("release", RELEASES.values(), ids=str)
def test_the_release_is_the_one_that_is_asked_for(release: Release, golden: Unpacked) -> None:
    """Also of a store that is only read: clients of 5.x can drain one of 4.9."""
    with Store(golden("broker"), release=release) as store:
        assert BrokerState(store, lambda _text: None).release == release
    with Store(golden("broker")) as store:
        assert BrokerState(store, lambda _text: None).release == V4_9
