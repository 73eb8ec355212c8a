"""Conditions on messages: each name is the field of machine output that it says."""

from typing import Any

import pytest

from formats.message.properties import parse
from formats.sql92.filter import BadFilter
from rmqtool.contract import MESSAGE_FIELDS, message_row
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.lookup.where import FieldCondition, RecordFields, RowFields
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.conftest import Unpacked
from tests.services.build import log_of

STORES = ("broker", "ipv6", "broker-5.3.3", "broker-5.5.0")
ALWAYS = ("queueId >= 0", "keys IS NULL OR keys IS NOT NULL", "bodyLength > -1")
SOME = (
    "queueId = 1",
    "queueId IN ('1', '2') AND queueOffset BETWEEN 2 AND 5",
    "topic = 'Orders' AND NOT (queueId = 0)",
    "storeSize > 260 OR bodyLength < 12",
    "tags IS NOT NULL AND keys CONTAINS '1'",
    "body STARTSWITH 'order' OR bornHost ENDSWITH '0'",
    "storeTimestamp > 1763600000000 AND physicalOffset > 3000",
    "UNIQ_KEY IS NOT NULL AND WAIT = 'true'",
    "region = 'eu'",
)


def messages_of(log: CommitLog) -> list[LocatedRecord]:
    return [message for item in log.walk() if isinstance(item, LocatedRecord) for message in item.messages()]


def fields_by_hand(row: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in row.items() if name in MESSAGE_FIELDS and name != "properties"}
    return {**row["properties"], **own, "keys": " ".join(row["keys"]) or None}


@pytest.mark.parametrize("case", STORES)
def test_names_are_the_fields_of_machine_output_then_properties(case: str, golden: Unpacked) -> None:
    for message in messages_of(log_of(golden(case))):
        row = message_row(message.record, message.physical_offset, "utf8")
        fields = RecordFields(message.record, message.physical_offset)
        wanted = fields_by_hand(row)
        assert {name: fields.get(name) for name in wanted} == wanted
        assert {*fields} >= {*wanted}
        given = RowFields(row)
        assert {name: given.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("case", STORES)
def test_a_record_and_its_row_match_alike(case: str, golden: Unpacked) -> None:
    messages = messages_of(log_of(golden(case)))
    for text in (*ALWAYS, *SOME):
        where = FieldCondition(text)
        chosen = [item for item in messages if Selection(where=where).has(item.record, item.physical_offset)]
        rows = [message_row(item.record, item.physical_offset, "utf8") for item in messages]
        assert len(chosen) == sum(where.has(RowFields(row)) for row in rows), text
        assert text not in ALWAYS or len(chosen) == len(messages)


def test_numbers_beyond_32_bits_are_numbers() -> None:
    # as a property this text would not be comparable with a constant of 32 bits
    assert FieldCondition("physicalOffset > 1000").has({"physicalOffset": 1 << 40})
    assert not FieldCondition("physicalOffset > 1000").has({"physicalOffset": str(1 << 40)})


def test_names_that_no_message_has_are_known() -> None:
    where = FieldCondition("bodyLenth > 1 OR queueId = 7")
    assert not where.has({"queueId": 1, "bodyLength": 5})
    assert where.unmet == ["bodyLenth"]


def test_properties_must_be_equal(golden: Unpacked) -> None:
    messages = messages_of(log_of(golden("broker")))
    name, value = next((n, v) for item in messages for n, v in parse(item.record.properties).items() if n == "KEYS")
    chosen = Selection(properties=((name, value),))
    having = [item for item in messages if chosen.has(item.record, item.physical_offset)]
    assert having == [item for item in messages if parse(item.record.properties).get(name) == value]
    assert 0 < len(having) < len(messages)


@pytest.mark.parametrize("text", ["", "a >", "a = 1 AND", "(a = 1", "1", "body CONTAINS x"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(BadFilter):
        FieldCondition(text)
