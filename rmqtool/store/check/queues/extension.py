"""Check that every unit of consume-queue extensions is intact."""

import os

from formats.endings import Ending
from formats.queues.extension import ExtensionUnit, units
from rmqtool.errors import UnreadableStore
from rmqtool.store.check.common.context import Context
from rmqtool.store.check.common.files import check_files
from rmqtool.store.layout.paths import EXTENSIONS
from rmqtool.store.queues.extension import extension_size


def check_extension(ctx: Context) -> None:
    """Check every file below ``consumequeue_ext``."""
    size = extension_size(ctx.layout)
    for topic, queue_id, path in ctx.layout.queue_dirs(EXTENSIONS):
        about = {"topic": topic, "queueId": queue_id}
        try:
            segments = ctx.layout.files_in(path)
            if size:
                check_files(ctx, segments, size, topic, queue_id)
            for segment in segments:
                for at, unit in units(segment.view()):
                    if not isinstance(unit, ExtensionUnit) and unit.ending in (Ending.DAMAGED, Ending.CUT):
                        name = ctx.name(segment.path)
                        ctx.found.add("ext-damage", name, offset=at, expected="a unit", actual=unit.reason, **about)
                segment.release()
        except UnreadableStore as err:
            ctx.found.add("file-unreadable", ctx.name(os.path.join(path)), actual=str(err), **about)
