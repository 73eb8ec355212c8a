"""Extensions of consume queues: how long their files are, which nothing in them tells."""

from collections import Counter

from rmqtool.store.layout.paths import StoreLayout

FOLDER = "consumequeue_ext"


def extension_size(layout: StoreLayout) -> int | None:
    """Bytes of each file: configured, or as most files of all queues have it; None without any file.

    All queues have one length (store.ConsumeQueueExt), and most have a single file.
    """
    if configured := layout.conf.sizes.get("mappedFileSizeConsumeQueueExt"):
        return configured
    paths = [path for _topic, _queue_id, path in layout.queue_dirs(FOLDER)]
    lengths = Counter(file.size for path in paths for file in layout.files_in(path) if file.size)
    return max(lengths, key=lambda length: (lengths[length], length), default=None)
