"""What shows that a store has a tier, and where its segments are: asked by every command that answers with messages.

Source: tieredstore.TieredMessageStore, tieredstore.MessageStoreConfig (5.3.3); store-formats 8.7.
"""

from contextlib import suppress

from rmqtool.errors import UnreadableStore
from rmqtool.store.disk.remote import exists, is_dir
from rmqtool.store.layout.paths import PARTS, StoreLayout

FOLDER = "tieredstore"  # where there is no setting
METADATA = "tieredStoreMetadata.json"
LOCAL_INDEX = "tiered_index_file"
_TIERED_STORE = "TieredMessageStore"


def tier_sign(layout: StoreLayout) -> str | None:
    """What shows that there is a tier; None without any."""
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
    """The directory of the segments (``tieredStoreFilePath``), or None where there is none.

    It may be any folder. One below the store is found without the setting too, by the names of what is in it, and so is
    one of a store that was moved or copied.
    """
    paths = layout.configured_paths("tieredStoreFilePath")
    if paths and is_dir(paths[0]):
        return paths[0]
    inside = [entry.path for entry in layout.entries() if entry.name not in PARTS and entry.is_dir()]
    own = layout.path(FOLDER)
    return own if own in inside else next((path for path in inside if _has_cluster(layout, path)), None)


def _has_cluster(layout: StoreLayout, folder: str) -> bool:
    """Whether a directory holds one of a cluster's segments, which has a hash before its name."""
    with suppress(UnreadableStore):
        return any(entry.is_dir() and is_cluster(entry.name) for entry in layout.entries_at(folder))
    return False


def is_cluster(name: str) -> bool:
    """Whether a directory has the name of a cluster's: eight digits of a hash before it."""
    from formats.config.tiered import hash_of  # most stores have no directory to ask about

    digest, line, cluster = name.partition("_")
    return bool(line) and digest == hash_of(cluster)
