"""The static topics of a broker: ``topicQueueMapping.json`` (broker.topic.TopicQueueMappingManager, 5.x)."""

from collections.abc import Mapping
from dataclasses import replace

from formats.config.files_of_5 import TopicQueueMapping, TopicQueueMappings
from formats.model.topics import DataVersion
from rmqtool.services.lookup.configs import look_at_config
from rmqtool.services.open_store.broker_state import BrokerState
from rmqtool.services.open_store.following import stamp_of

FILE = "topicQueueMapping.json"


class StaticTopics:
    """``topicQueueMapping.json``, written whenever it changes. A broker of 4.9 knows no static topics.

    Raises:
        CorruptFile: the file and its ``.bak`` are broken.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._stamp = stamp_of(state.layout.path("config", FILE))
        self._file = state.load(FILE, TopicQueueMappings) if state.release.is_5 else TopicQueueMappings()

    def look(self) -> bool:
        """Read the file again if another broker has changed it; returns whether it has."""
        path = self._state.layout.path("config", FILE)
        before, self._stamp = self._stamp, stamp_of(path)
        if before == self._stamp or not self._state.release.is_5:
            return False
        file = look_at_config(self._state.layout, FILE, lambda _text: None)
        if not isinstance(file, TopicQueueMappings):  # it is just being replaced
            self._stamp = ()
            return False
        self._file = file
        return True

    @property
    def mappings(self) -> Mapping[str, TopicQueueMapping]:
        """By topic."""
        return self._file.mappings

    @property
    def version(self) -> DataVersion:
        """When they were last changed."""
        return self._file.data_version

    def set(self, mapping: TopicQueueMapping) -> None:
        """Enter or change a mapping.

        Raises:
            OSError: the file cannot be written; nothing is changed.
        """
        self._become({**self._file.mappings, mapping.topic or "": mapping})

    def remove(self, topic: str) -> None:
        """Forget a topic; nothing is written if it is not a static one.

        Raises:
            OSError: the file cannot be written; nothing is changed.
        """
        if topic in self._file.mappings:
            self._become({name: mapping for name, mapping in self._file.mappings.items() if name != topic})

    def _become(self, mappings: Mapping[str, TopicQueueMapping]) -> None:
        before, version = self._file, self._file.data_version
        version = replace(version, counter=version.counter + 1, timestamp=self._state.clock())
        self._file = replace(before, mappings=mappings, data_version=version)
        try:
            self._state.keep(FILE, self._build, now=True)
        except BaseException:
            self._file = before
            raise

    def _build(self) -> bytes:
        return self._file.build(self._state.release.version)
