"""Recognising RocksDB directories by their file names."""

import pytest

from formats.variants.rocksdb import describe, is_rocksdb
from tests import goldens
from tests.conftest import Unpacked

FILES = ["CURRENT", "IDENTITY", "LOCK", "LOG", "LOG.old.1700000000", "MANIFEST-000005", "OPTIONS-000007", "000012.sst"]


def test_a_database_has_a_current_file_and_a_manifest() -> None:
    assert is_rocksdb(FILES)
    assert is_rocksdb([*FILES, "TopicTest", "000004.log"])  # newer brokers keep topic folders beside it
    assert not is_rocksdb(["CURRENT"])
    assert not is_rocksdb(["MANIFEST-000005"])
    assert not is_rocksdb(["CURRENT", "MANIFEST-x"])
    assert not is_rocksdb([])


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("consumequeue", "consume queues"),
        ("config/topics", "topics"),
        ("config/subscriptionGroups/", "subscription groups"),
        ("config/consumerOffsets", "consumer offsets"),
        ("config/rdb", "config v2"),
        ("kvStore", "pop records"),
        ("elsewhere", "unknown"),
    ],
)
def test_the_place_says_what_it_holds(place: str, name: str) -> None:
    form = describe(FILES, place)

    assert form is not None
    assert form.name == name
    assert describe(["TopicTest"], place) is None


def test_real_stores_of_4_9_have_none(golden: Unpacked) -> None:
    for case in goldens.cases():
        for folder in [golden(case), *golden(case).rglob("*")]:
            if folder.is_dir():
                assert not is_rocksdb(path.name for path in folder.iterdir())
