"""Create an empty store."""

import os

from formats import checkpoint
from formats.checkpoint import NO_ENTRY, Checkpoint
from rmqtool.errors import Refused
from rmqtool.rules.releases import NEWEST, Release
from rmqtool.store.config.fit import refuse_unusable_sizes
from rmqtool.store.disk.durable import sync
from rmqtool.store.disk.files import list_folder
from rmqtool.store.disk.new_files import make_file, make_root
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout, checked_path
from rmqtool.store.log.writer import LogWriter


def create(root: str, conf: BrokerConf | None = None, release: Release = NEWEST) -> StoreLayout:
    """Create an empty store like a broker's first start; its first commit-log file determines the file size.

    Args:
        release: release of the store, by which later commands know it: a 5.x store gets a directory for the timer log,
            and one of 5.5 the field of its checkpoint, with the value for "no queue entry yet".

    Raises:
        Refused: the place is not empty, or cannot be written to, or a size in the settings is no positive number.
    """
    root = checked_path(root)
    conf = conf or BrokerConf()
    refuse_unusable_sizes(conf)
    try:
        if os.path.lexists(root) and list_folder(root):
            raise Refused(f"{root}: is not empty: give another directory")
        if not os.path.isdir(root):
            make_root(root)
        of_release = ("timerlog",) if release.has_timer else ()
        for folder in ("commitlog", "consumequeue", "index", "config", *of_release):
            make_folders(os.path.join(root, folder))
        layout = StoreLayout(root, conf)
        for folder in layout.commit_log_paths:
            # the settings may name the log of another process's store
            if os.path.isdir(folder) and list_folder(folder):
                raise Refused(f"{folder}: is not empty: give another directory")
        point = Checkpoint(logics_physical_offset=NO_ENTRY) if release.marks_flushed_queues else Checkpoint()
        for path, data in (("checkpoint", checkpoint.build(point)), ("lock", b"lock")):
            make_file(layout.path(path), data)
        first = LogWriter(layout.commit_log_paths[:1], layout.commit_log_size(layout.commit_log()))
        first.make_file()
        first.close()
        for folder in (layout.root, os.path.dirname(layout.root)):
            sync(folder)
    except OSError as err:
        raise Refused(f"{err.filename or root}: {os.strerror(err.errno or 0)}") from err
    return layout
