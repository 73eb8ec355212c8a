"""Repair extensions of queues: remove units that a broker would not load, and those after damage.

A broker reads units one after the other and writes new ones where they end. An entry that refers to a unit beyond that
end would later refer to a different unit. Such an entry gets the tags code that it would have without an extension;
a broker whose filter needs more reads the message itself.

Source: store.ConsumeQueueExt (load, recover, truncateByMaxAddress).
"""

from collections.abc import Callable
from contextlib import suppress

from formats.endings import Ending
from formats.queues.extension import ExtensionUnit, read, units
from rmqtool.errors import UnreadableStore
from rmqtool.store.changes.change import Change
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.segments import Segment, Segments
from rmqtool.store.disk.sparse import has_bytes
from rmqtool.store.layout.mending import can_go
from rmqtool.store.layout.paths import EXTENSIONS, StoreLayout
from rmqtool.store.queues.extension import extension_size

Say = Callable[[str, str], None]


class Extension:
    """The extension of one queue.

    Args:
        size: bytes per file; None to keep their length.
    """

    def __init__(self, files: Segments, size: int | None = None) -> None:
        self._files, self._size = files, size
        self._ends: dict[int, tuple[int, bool]] = {}

    @classmethod
    def of(cls, layout: StoreLayout, topic: str, queue_id: int) -> "Extension":
        """The extension of a queue, for reading."""
        return cls(layout.files_in(layout.queue_path(topic, queue_id, EXTENSIONS)))

    def unit_at(self, offset: int) -> ExtensionUnit | None:
        """The unit at an offset, if a broker finds it now and in the future; else None."""
        file = self._files.find(offset)
        if file is None or offset - file.base >= self._end(file)[0]:
            return None
        unit = read(file.view(), offset - file.base, file.size)
        return unit if isinstance(unit, ExtensionUnit) else None

    def _end(self, file: Segment) -> tuple[int, bool]:
        """(end of the units at the beginning of a file, whether damage follows)."""
        if file.base not in self._ends:
            at, damaged = 0, True
            with suppress(UnreadableStore):
                for at, unit in units(file.view()):  # noqa: B007
                    damaged = not isinstance(unit, ExtensionUnit) and unit.ending in (Ending.DAMAGED, Ending.CUT)
                file.release()
            self._ends[file.base] = at, damaged
        return self._ends[file.base]

    def prepare(self, change: Change, say: Say) -> None:
        """Add files without their damaged part, and with the right length, to a change."""
        files, gone = list(self._files), list(filter(can_go, self._files.foreign))
        while files and not files[-1].size:
            gone.append(files.pop().path)
        for path in gone:
            change.remove(path)
            say("remove", path)
        for file in files:
            wanted, (end, damaged) = self._size or file.size, self._end(file)
            if file.size != wanted:
                staged = change.staging()
                with make_file(staged) as copy:
                    copy.copy_from(file.path, min(end if damaged else file.size, wanted))
                    copy.cut(wanted)
                change.put(file.path, staged)
                say("replace", file.path)
            elif damaged and has_bytes(file.path, end, file.size) > end:
                change.zero(file.path, end, file.size)
                say(f"zero bytes {end} to {file.size} of", file.path)


def prepare_extensions(layout: StoreLayout, change: Change, say: Say) -> None:
    """Add the changes of all extensions."""
    size = extension_size(layout)
    for _topic, _queue_id, path in layout.queue_dirs(EXTENSIONS):
        Extension(layout.files_in(path), size).prepare(change, say)
