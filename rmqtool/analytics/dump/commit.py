"""The journal of a publication in OUT: files to be moved up, and files to be removed.

The presence of a journal is not enough to execute it. It must belong to the run whose staging directory is next to it
and name only plain Parquet files below OUT, each present with the recorded size; then executing it completes that run.
Any other journal changes nothing.
"""

from dataclasses import dataclass
from typing import Any

from rmqtool.analytics.dump.names import (
    JOURNAL,
    MANIFEST,
    RUN,
    STAGING,
    SUCCESS,
    has_links,
    is_plain,
    is_replaceable,
)
from rmqtool.analytics.remote.files import Folder, local_path, prune, text
from rmqtool.errors import Refused
from rmqtool.store.disk.remote import show_uri


@dataclass(frozen=True, slots=True)
class PublishJournal:
    """The steps that publish a run.

    Attributes:
        run: the run's description, as stored in the staging directory.
        files: files to be moved up from the staging directory: sizes in bytes by name.
        remove: files of an older output to be removed: sizes in bytes by name.
        manifest: the manifest of the published output.
    """

    run: Any
    files: dict[str, int]
    remove: dict[str, int]
    manifest: dict[str, Any]

    def write(self, folder: Folder) -> None:
        """Write the journal to OUT, via the staging directory, so that it survives a power failure."""
        journal = {"run": self.run, "files": self.files, "remove": self.remove, "manifest": self.manifest}
        folder.write(JOURNAL, text(journal), STAGING, lasting=True)

    @classmethod
    def read(cls, folder: Folder) -> "PublishJournal | None":
        """Return the validated journal in OUT, or None without one.

        Raises:
            Refused: the file is not the journal of the run in the staging directory.
        """
        if folder.size(JOURNAL) is None:
            return None
        journal = folder.read_json(JOURNAL)
        reason = _wrong(folder, journal)
        if reason is not None:
            raise Refused(
                f"{show_uri(folder.location)}: {JOURNAL} {reason}: it does not belong to a dump that was interrupted "
                "here, so nothing was done; remove it if OUT is complete, or dump to another directory"
            )
        return cls(journal["run"], journal["files"], journal["remove"], journal["manifest"])

    def finish(self, folder: Folder) -> None:
        """Execute the remaining steps. Idempotent."""
        if folder.read_json(f"{STAGING}/{RUN}") is None:
            self._forget(folder)  # everything is in place
            return
        folder.delete(SUCCESS)
        folder.sync("")
        for name in self.remove:
            folder.delete(name)
        folders = set()
        for name in self.files:
            if folder.size(f"{STAGING}/{name}") is None:
                continue  # moved already
            level = name.rpartition("/")[0]
            if level and level not in folders:
                folder.make(level)
                folders.add(level)
            folder.move(f"{STAGING}/{name}", name)
        folder.sync_names()
        folder.write(MANIFEST, text(self.manifest), STAGING, lasting=True)
        folder.write(SUCCESS, "", STAGING, lasting=True)
        self._forget(folder)

    @staticmethod
    def _forget(folder: Folder) -> None:
        folder.delete_dir(STAGING)
        if local_path(folder.location) is not None:
            prune(folder.path)
        folder.delete(JOURNAL)
        folder.sync("")


def _wrong(folder: Folder, journal: Any) -> str | None:
    """Return what is wrong with a journal; None if it may be executed."""
    if not isinstance(journal, dict) or not isinstance(journal.get("manifest"), dict):
        return "is no journal"
    files, remove = _sizes(journal.get("files")), _sizes(journal.get("remove"))
    if files is None or remove is None:
        return "is no journal"
    bad = [name for name in files if not is_plain(name)] + [name for name in remove if not is_replaceable(name)]
    if bad:
        return f"names {bad[0]!r}, which is not a file of a dump"
    if both := files.keys() & remove.keys():
        return f"names {min(both)!r} twice"
    if has_links(folder):
        return "lies among links"
    staged = folder.read_json(f"{STAGING}/{RUN}")
    moved = {name: folder.size(name) for name in files}
    if staged is None:
        # the staging directory is removed once everything is in place; then only the journal is left to remove
        if folder.size(SUCCESS) is None or folder.read_json(MANIFEST) != journal["manifest"]:
            return "belongs to a run that has left nothing here"
    elif staged != journal.get("run"):
        return "belongs to another run than what is here"
    for name, size in files.items():
        waiting = folder.size(f"{STAGING}/{name}") if staged is not None else None
        if waiting not in (None, size) or (waiting is None and moved[name] != size):
            return f"tells of {name!r} with {size} bytes, which is not here so"
    for name, size in remove.items():
        if folder.size(name) not in (None, size):
            return f"tells of {name!r} with {size} bytes, which is not here so"
    return None


def _sizes(value: Any) -> dict[str, int] | None:
    """Return sizes by name, or None if the value has another form."""
    if not isinstance(value, dict) or any(type(size) is not int or size < 0 for size in value.values()):
        return None
    return value
