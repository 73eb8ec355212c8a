"""The tables of a store that is served and not written: what changes stays in memory, but for the groups' offsets.

These go to a file of their own, in the form of ``group offsets --output csv``, which ``group reset --from-csv`` takes.
"""

import csv
import io

from rmqtool.services.consumers.offset_plan import read_rows
from rmqtool.services.lookup.configs import Warn, known_offsets, look_at_config
from rmqtool.services.offsets.files import Key
from rmqtool.services.opened.broker_state import BrokerState, T
from rmqtool.services.opened.engine import Store
from rmqtool.store.disk.durable import replace_file
from rmqtool.store.disk.segments import read_small

_COLUMNS = ("group", "topic", "queueId", "consumerOffset")


class DrainedState(BrokerState):
    """As :class:`BrokerState`, of a store that is only read. Config files that cannot be read are told and left out.

    Args:
        offsets_path: where offsets are kept; those in it count for more than those of the store.

    Raises:
        CorruptFile: ``offsets_path`` holds something else.
    """

    def __init__(self, store: Store, warn: Warn, offsets_path: str) -> None:
        self._own_path = offsets_path
        super().__init__(store, warn)

    def _load(self, name: str, kind: type[T]) -> T:
        found = look_at_config(self.layout, name, self.warn)
        return found if isinstance(found, kind) else kind()

    def _load_offsets(self) -> tuple[str, dict[Key, int]]:
        offsets = known_offsets(self.layout, self.warn)
        self._kept: dict[Key, int] = {}
        if read_small(self._own_path) is not None:
            for row in read_rows(self._own_path):
                self._kept[row.key] = row.offset
        return self._own_path, offsets | self._kept

    def persist(self) -> bool:
        """Write the offsets that groups have committed here; whether there were new ones."""
        self._dirty.clear()
        if not (self._changed or self._removed):
            return False
        self._kept |= self._changed
        for key in [key for key in self._kept if key[:2] in self._removed and key not in self._changed]:
            del self._kept[key]
        text = io.StringIO(newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(_COLUMNS)
        table.writerows((group, topic, queue, offset) for (topic, group, queue), offset in sorted(self._kept.items()))
        replace_file(self._offsets_path, text.getvalue().encode(), keep=False)
        self._changed.clear()
        self._removed.clear()
        return True
