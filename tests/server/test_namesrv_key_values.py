"""The KV configuration and its file."""

import errno
import os
from pathlib import Path

import pytest

from rmqtool.errors import CorruptFile, Refused, UnreadableStore
from rmqtool.server.namesrv import key_values
from rmqtool.server.namesrv.key_values import KeyValueTable


def test_what_is_changed_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "kvConfig.json")
    values = KeyValueTable(path)
    assert values.table == {}
    values.put("n", "k", "v")
    values.put("n", "l", "ü")
    assert KeyValueTable(path).table == values.table == {"n": {"k": "v", "l": "ü"}}
    values.delete("n", "k")
    values.delete("n", "k")
    values.delete("m", "k")
    assert KeyValueTable(path).table == values.table == {"n": {"l": "ü"}}


def test_a_file_that_a_name_server_of_rocketmq_has_written(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_text('{\n\t"configTable":{\n\t\t"ORDER_TOPIC_CONFIG":{\n\t\t\t"Orders":"lab-a:4"\n\t\t}\n\t}\n}')
    assert KeyValueTable(str(file)).get("ORDER_TOPIC_CONFIG", "Orders") == "lab-a:4"


@pytest.mark.parametrize("text", ["{", "[]", '{"configTable":[]}', '{"configTable":{"n":{"k":7}}}', "\ufeff{}"])
def test_a_file_with_something_else_is_left_alone(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kv.json"
    file.write_text(text)
    with pytest.raises(CorruptFile):
        KeyValueTable(str(file))
    assert file.read_text() == text


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UnreadableStore, match="Is a directory"):
        KeyValueTable(str(tmp_path))


def test_what_somebody_else_has_written_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "kv.json")
    first, second = KeyValueTable(path), KeyValueTable(path)
    first.put("n", "k", "one")
    for change in (lambda: second.put("n", "k", "other"), lambda: second.put("m", "k", "other")):
        with pytest.raises(Refused, match="another process has changed it"):
            change()
    assert second.table == {}
    assert KeyValueTable(path).table == {"n": {"k": "one"}}


def test_what_cannot_be_written_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "kv.json")
    values = KeyValueTable(path)
    values.put("n", "k", "v")

    def full(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for change in (lambda: values.put("n", "k", "w"), lambda: values.delete("n", "k")):
            with pytest.raises(UnreadableStore, match="No space left"):
                change()
    assert KeyValueTable(path).table == values.table == {"n": {"k": "v"}}
    values.put("n", "k", "w")  # there is room again
    assert KeyValueTable(path).table == {"n": {"k": "w"}}


def test_what_a_file_holds_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "kv.json")
    KeyValueTable(path).put("n", "k", "v")
    monkeypatch.setattr(key_values, "MOST_TEXT", 300)
    values = KeyValueTable(path)
    with pytest.raises(Refused, match="more than 300"):
        values.put("n", "l", "v")
    values.put("n", "k", "w")
