"""Signs that a part of the commit log is missing; checked by every reading command.

Source: store.MultiPathMappedFileQueue.
"""

from itertools import pairwise

from rmqtool.store.disk.remote import is_dir
from rmqtool.store.layout.paths import StoreLayout


def missing_log_folders(layout: StoreLayout) -> str | None:
    """The sign that a directory of the commit log is missing; None if all are there.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    folders = layout.commit_log_paths
    if len(folders) > 1:
        missing = [folder for folder in folders if not is_dir(folder)]
        return f"{', '.join(missing)} is not there" if missing else None
    bases = [(file.base, file.end) for file in layout.commit_log()]
    gaps = [(end, base) for (_, end), (base, _) in pairwise(bases) if base != end]
    # files alternate between folders, so a single folder has several gaps of one file each
    sizes = {end - base for base, end in bases}
    if len(gaps) > 1 and len(sizes) == 1 and all(base - end == next(iter(sizes)) for end, base in gaps):
        return f"{folders[0]} has every second file only (storePathCommitLog names the other folder)"
    return None
