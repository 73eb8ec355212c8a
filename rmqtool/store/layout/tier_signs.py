"""Signs that a store has a tier, and where its segments are; checked by every command that returns messages.

Source: tieredstore.TieredMessageStore, tieredstore.MessageStoreConfig (5.3.3); store-formats 8.7.
"""

from contextlib import suppress

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.directories import exists, is_dir
from rmqtool.store.layout.paths import PARTS, StoreLayout

FOLDER = "tieredstore"  # default without a setting
METADATA = "tieredStoreMetadata.json"
LOCAL_INDEX = "tiered_index_file"
_TIERED_STORE = "TieredMessageStore"


def tier_sign(layout: StoreLayout) -> str | None:
    """The sign that there is a tier; None if there is none."""
    plug_in = layout.conf.text("messageStorePlugIn") or ""
    if any(part.strip().endswith(_TIERED_STORE) for part in plug_in.split(",")):
        return f"messageStorePlugIn={plug_in}"
    for name in (METADATA, METADATA + ".bak"):
        if exists(layout.path("config", name)):
            return f"config/{name} is there"
    if layout.entries(LOCAL_INDEX):
        return f"{LOCAL_INDEX} is there"
    if (folder := tiered_folder(layout)) is not None:
        return f"{folder} has its segments"
    return None


def tiered_folder(layout: StoreLayout) -> str | None:
    """The directory of the segments (``tieredStoreFilePath``); None if there is none.

    It may be anywhere. If it is below the store it is also detected without the setting, by the names of its
    contents; this also covers stores that were moved or copied.
    """
    paths = layout.configured_paths("tieredStoreFilePath")
    if paths and is_dir(paths[0]):
        return paths[0]
    inside = [entry.path for entry in layout.entries() if entry.name not in PARTS and entry.is_dir()]
    own = layout.path(FOLDER)
    return own if own in inside else next((path for path in inside if _has_cluster(layout, path)), None)


def _has_cluster(layout: StoreLayout, folder: str) -> bool:
    """Whether a directory contains a cluster's segments, recognized by the hash in front of the cluster's name."""
    with suppress(UnreadableStore):
        return any(entry.is_dir() and is_cluster(entry.name) for entry in layout.entries_at(folder))
    return False


def is_cluster(name: str) -> bool:
    """Whether a directory is named after a cluster: eight hash digits, then the cluster's name."""
    from formats.config.tiered import hash_of  # most stores have no directory to ask about

    digest, line, cluster = name.partition("_")
    return bool(line) and digest == hash_of(cluster)
