"""Repair files that a broker refuses to load: correct the length of log files, and remove what does not belong."""

import os
from contextlib import suppress

from rmqtool.errors import Refused, UnreadableStore
from rmqtool.store.changes.change import Change
from rmqtool.store.disk.readable import need_readable
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.mending import cut_short, default_length, remedy_for, remedy_for_only_file
from rmqtool.store.layout.paths import BATCH_QUEUES, StoreLayout
from rmqtool.store.log.commit_log import CommitLog
from rmqtool.store.queues.reader import open_queue
from rmqtool.store.recovery.whole_log import FittedFile, fit_log, warnings_of_lengths


def lone_length(log: CommitLog) -> int | None:
    """The most likely original length of a truncated log that has only one file; None otherwise."""
    alone = cut_alone(log)
    return None if alone is None else default_length(*alone)


def cut_alone(log: CommitLog) -> tuple[Segment, int] | None:
    """The only file of a log if it was truncated, and the end of the last message in any queue; None otherwise."""
    files = log.segments.files
    if len(files) != 1:
        return None
    known = -1
    for topic, queue_id, path in log.layout.queue_dirs():
        with suppress(UnreadableStore):
            need_readable(log.layout.files_in(path))
            queue = open_queue(log.layout, topic, queue_id)
            known = max(known, queue.recovered.max_physical_offset if queue is not None else -1)
    return (files[0], known) if cut_short(files, log.layout.conf, known) else None


class LengthMender:
    """Repairs files of the log, and removes foreign files from log and queues.

    Attributes:
        left: files that only the user can repair, with what to do.
        warnings: what is missing in repaired files.
    """

    def __init__(self, layout: StoreLayout) -> None:
        self._layout, self._log = layout, CommitLog(layout)
        self.left: list[str] = []
        self.warnings: list[str] = []

    def prepare(self, change: Change) -> list[str]:
        """Add the repair to a change; returns descriptions of the steps.

        Raises:
            Refused: there is a directory where only files belong.
        """
        steps: list[str] = []
        for path in self._foreign():
            if os.path.isdir(path) and not os.path.islink(path):
                raise Refused(f"{path}: a directory that does not belong there: move it away; nothing was changed")
            change.remove(path)
            steps.append(f"remove {self._name(path)}")
        if (alone := cut_alone(self._log)) is not None:
            if (length := default_length(*alone)) is None:
                self.left.append(remedy_for_only_file(*alone).does)
            else:
                self._log.file_size = length
        log = self._log
        wrong = [(file.path, "") for file in log.segments if file.size != log.file_size]
        fitted = fit_log(log, wrong, [], change.staging)
        for file in fitted.removed:
            change.remove(file.path)
            steps.append(f"remove {self._name(file.path)}")
        for fit in fitted.files:
            if isinstance(fit, FittedFile):
                change.put(fit.path, fit.where, fit.mtime_ns)
                verb, how = ("fill", " up with zeros") if fit.size > fit.source.size else ("cut", "")
                steps.append(f"{verb} {self._name(fit.path)}{how} from {fit.source.size} to {fit.size} bytes")
        sizes = {file.path: file.size for file in log.segments}
        self.left += [
            f"{path}: {remedy_for(path, sizes[path], log.file_size, last=False).does}" for path, _why in fitted.refused
        ]
        # a short last file only lacks space that was never written
        self.warnings = warnings_of_lengths(fitted.files[:-1])
        return steps

    def _foreign(self) -> list[str]:
        layout = self._layout
        kinds = ("consumequeue", "consumequeue_ext", BATCH_QUEUES)
        folders = [path for kind in kinds for _topic, _queue, path in layout.queue_dirs(kind)]
        return [*self._log.segments.foreign, *(path for folder in folders for path in layout.files_in(folder).foreign)]

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._layout.root)
