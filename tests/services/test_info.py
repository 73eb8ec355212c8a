"""The summary of a store."""

import pytest

from formats.config.file import ConfigFile
from rmqtool.services.lookup.info import store_info
from rmqtool.store.config import files
from rmqtool.store.layout.paths import StoreLayout
from tests.conftest import Unpacked


def test_each_config_file_is_parsed_once(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets may be millions, and take seconds."""
    parsed: list[str] = []
    parse = files.parse_config

    def count(model: type[ConfigFile], path: str, data: bytes) -> ConfigFile:
        parsed.append(path)
        return parse(model, path, data)

    monkeypatch.setattr(files, "parse_config", count)
    info = store_info(StoreLayout(str(golden("broker"))))
    assert len(info.configs) == len(parsed) == len(set(parsed)) == 10
    assert {"lab-consumer", "lab-orderly"} < set(info.groups)
    assert {"Orders", "TBW102"} < {topic.topic for topic in info.topics}
