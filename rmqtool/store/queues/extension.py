"""The file size of consume-queue extensions, which their contents do not show."""

from collections import Counter

from rmqtool.store.layout.paths import EXTENSIONS, StoreLayout


def extension_size(layout: StoreLayout) -> int | None:
    """Bytes per file: configured, or the length of most files of all queues; None without files.

    All queues have the same file size (store.ConsumeQueueExt), and most have only one file.
    """
    if configured := layout.conf.sizes.get("mappedFileSizeConsumeQueueExt"):
        return configured
    paths = [path for _topic, _queue_id, path in layout.queue_dirs(EXTENSIONS)]
    lengths = Counter(file.size for path in paths for file in layout.files_in(path) if file.size)
    return max(lengths, key=lambda length: (lengths[length], length), default=None)
