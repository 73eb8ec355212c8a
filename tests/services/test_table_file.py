"""Config files in which only changed entries are rebuilt: the same bytes, at constant cost."""

import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from formats.config.files import SubscriptionGroups, Topics
from formats.model.groups import SubscriptionGroup
from formats.model.topics import DataVersion, TopicConfig
from formats.primitives import java_hash
from rmqtool.rules.releases import RELEASES, V5_3
from rmqtool.services.offsets.files import place_keys
from rmqtool.services.open_store.broker_state import BrokerState, TableFile
from rmqtool.services.open_store.store import Store

NAMES = ["a", "Ä", '"topicConfigTable":{}', "x\n\ty", "%RETRY%g", *(f"topic-{number}" for number in range(300))]


@pytest.mark.parametrize("engine", ["4.9", "5.3"])
@pytest.mark.parametrize("known", [[], ["b", "a"], NAMES[:40]], ids=["new", "unordered", "some"])
def test_changed_topics_are_written_as_if_all_were_rebuilt(engine: str, known: list[str]) -> None:
    random = Random(7)
    table: dict[str, TopicConfig] = {name: TopicConfig(topic_name=name) for name in known}
    file, before = TableFile[Topics](table, "topics", "topicConfigTable", RELEASES[engine]), dict(table)
    for turn in range(60):
        for name in random.sample(NAMES, 9):
            if random.random() < 0.2:
                table.pop(name, None)
            else:
                attributes: Any = {"message.type": "FIFO"} if random.random() < 0.3 else None
                table[name] = TopicConfig(topic_name=name, perm=random.choice([2, 4, 6]), attributes=attributes)
        whole = Topics(data_version=DataVersion(counter=turn), topics=dict(table))
        ordered = place_keys(whole.topics, before, java_hash, 2048)
        assert file.build(whole) == replace(whole, topics=ordered).build(RELEASES[engine].version)
        before = ordered


def test_changed_groups_are_written_as_if_all_were_rebuilt() -> None:
    groups = SubscriptionGroups(groups={f"g{n}": SubscriptionGroup(group_name=f"g{n}") for n in range(50)})
    file = TableFile[SubscriptionGroups]((), "groups", "subscriptionGroupTable", V5_3)
    for _ in range(2):
        assert file.build(groups) == replace(groups, groups=place_keys(groups.groups, {}, java_hash, 2048)).build(
            V5_3.version
        )


def test_a_new_group_costs_the_same_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    real = SubscriptionGroups.build

    def build(groups: SubscriptionGroups, *named: Any) -> bytes:
        built.append(len(groups.groups))
        return real(groups, *named)

    monkeypatch.setattr(SubscriptionGroups, "build", build)
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    with Store.create(tmp_path / "store", release=V5_3) as store:
        state = BrokerState(store, print)
        for turn in range(3):
            for number in range(500):
                state.ensure_group(f"group-{turn}-{number}")
            assert not built, "they are written together"
            state.persist()
            assert sum(built) <= 500 + 1, "unchanged entries are not rebuilt"
            built.clear()
        again = BrokerState(store, print)
        assert set(again.groups) == set(state.groups)
