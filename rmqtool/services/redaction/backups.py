"""Overwrite messages in all backups of a directory, and bring their manifests up to date.

Each backup is one change: its files and its manifest are replaced together, so a run that was killed may be repeated.
Files that backups shared are shared again afterwards.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rmqtool.errors import Refused
from rmqtool.services.lookup.selection import Selection
from rmqtool.services.redaction.redact import (
    GONE,
    Cleared,
    Redacted,
    RedactionReport,
    check_properties,
    folders_of,
    make_plan,
    remove_previous,
    stage,
)
from rmqtool.store.backup.copying import read_copy
from rmqtool.store.backup.local import LocalHome, share
from rmqtool.store.backup.manifest import MANIFEST, BackupFile
from rmqtool.store.backup.use import layout_of
from rmqtool.store.changes.writing import changing, hold_to_plan
from rmqtool.store.layout.backup_signs import STORE
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.words import command_line

_WARNING = "the store that was backed up, its replicas, and other directories of backups keep their copies"


def redact_backups(
    place: str,
    selection: Selection,
    ids: Sequence[str],
    *,
    properties: Sequence[str] = (),
    conf: BrokerConf | None = None,
    dry_run: bool = False,
    shown: RedactionReport | None = None,
) -> RedactionReport:
    """Overwrite messages in every backup of a directory; paths in the report are relative to it.

    Nothing that is replaced is kept.

    Args:
        place: the directory of backups.
        selection: see :func:`rmqtool.services.redaction.redact.redact`, also for the other arguments.
        conf: settings of the broker.

    Raises:
        Refused: an interrupted backup is there, a backup is being made, a file differs from its manifest, a message
            cannot be overwritten, or the plan has changed.
        BadValue: see :func:`rmqtool.services.redaction.redact.check_properties`.
        CorruptFile: a manifest is damaged.
        UnreadableStore: it is no directory of backups.
        Interrupted: SIGINT or SIGTERM.
    """
    check_properties(properties)
    home = LocalHome(place)
    home.names()  # raises if it is none, before anything is created
    with home.locked(home.place):
        names, interrupted = home.names()
        if interrupted:
            raise Refused(
                f"{home.path_of(interrupted[0])}: an interrupted backup, which may have copies of the messages: "
                "complete it (the same backup create continues with it), or delete it"
            )
        run = _Run(home, names, selection, ids, properties)
        reports = [run.do(name, conf, dry_run=dry_run, shown=shown) for name in names]
    return RedactionReport(
        store=home.place,
        messages=[row for report in reports for row in report.messages],
        cleared=[row for report in reports for row in report.cleared],
        files=[path for report in reports for path in report.files],
        warnings=list(dict.fromkeys(text for report in reports for text in report.warnings)),
        applied=any(report.applied for report in reports),
    )


class _Run:
    """The backups of a directory, one after the other."""

    def __init__(
        self, home: LocalHome, names: Sequence[str], selection: Selection, ids: Sequence[str], properties: Sequence[str]
    ) -> None:
        self._home, self._selection, self._ids, self._properties = home, selection, ids, properties
        self._links = Counter(
            os.stat(home.path_of(name, path)).st_ino for name in names for path in home.files_in(name)
        )  # fmt: skip
        self._made: dict[tuple[str, str], str] = {}  # path in a backup and new checksum to the file that has it

    def do(
        self, name: str, conf: BrokerConf | None, *, dry_run: bool, shown: RedactionReport | None
    ) -> RedactionReport:
        """One backup."""
        layout = layout_of(os.path.join(self._home.path_of(name), STORE), conf)
        if layout.aborted and not layout.dledger_dirs():
            raise Refused(
                f"{layout.root}: its broker was not stopped cleanly before the backup was made: restore it "
                f"({command_line('backup', 'restore', self._home.place, 'NEWSTORE', '--name', name)}), run recover and "
                "redact there, back it up to another directory, and delete this backup"
            )
        if dry_run:
            return self._report(name, make_plan(*self._question(layout))[0])
        manifest = os.path.join(self._home.path_of(name), MANIFEST)
        with changing(layout, GONE, named=[manifest], folders=folders_of(layout)) as change:
            backup = self._home.read(name)
            plan, patches = make_plan(*self._question(layout))
            report = self._report(name, plan)
            hold_to_plan(layout.root, shown and _part(shown, name), (report.messages, report.cleared))
            lines = {file.path: file for file in backup.files}
            for file, changes in patches:
                path = os.path.relpath(file.path, layout.root)
                before = self._check(name, path, lines)
                staged = stage(file, changes, change.staging())
                lines[path] = self._describe(staged, before)
                change.put(file.path, staged, file.mtime_ns)
            if patches:
                change.put_content(manifest, replace(backup, files=list(lines.values())).build())
                change.commit()
                self._made |= {
                    (path, lines[path].sha256): self._home.path_of(name, path)
                    for path in (os.path.relpath(file.path, layout.root) for file, _changes in patches)
                }
            remove_previous(layout)
        return replace(report, applied=bool(patches))

    def _question(
        self, layout: StoreLayout
    ) -> tuple[StoreLayout, Selection, Sequence[str], Sequence[str], Sequence[str], Counter[int]]:
        """The arguments of :func:`make_plan`."""
        return layout, self._selection, self._ids, self._properties, [_WARNING], self._links

    def _report(self, name: str, plan: RedactionReport) -> RedactionReport:
        """A plan with paths relative to the directory of backups."""
        above = os.path.join(name, STORE)
        return replace(
            plan,
            messages=[replace(row, file=os.path.join(above, row.file)) for row in plan.messages],
            cleared=[replace(row, file=os.path.join(above, row.file)) for row in plan.cleared],
        )

    def _check(self, name: str, path: str, lines: dict[str, BackupFile]) -> BackupFile:
        """The line of a file in the manifest, which it must still match."""
        fault = self._home.difference(name, lines[path]) if path in lines else "not in the manifest"
        if fault is not None:
            raise Refused(
                f"{self._home.path_of(name, path)}: {fault}: nothing of this backup was changed; delete the backup "
                f"({self._home.path_of(name)}), or put the file right"
            )
        return lines[path]

    def _describe(self, staged: str, before: BackupFile) -> BackupFile:
        """The new line of a file, which is shared with an earlier backup that has the same one now."""
        written, digest = read_copy(staged)
        made = self._made.get((before.path, digest))
        linked = False
        if before.linked and made is not None and os.stat(made).st_size == before.bytes:
            linked = share(made, staged)
        # it is no copy of the original any more, and a later backup must not take it for one
        return replace(before, written=written, sha256=digest, inode=0, sealed=False, linked=linked)


def _part(shown: RedactionReport, name: str) -> tuple[list[Redacted], list[Cleared]]:
    """What a plan says of one backup."""
    above = os.path.join(name, "")
    return (
        [row for row in shown.messages if row.file.startswith(above)],
        [row for row in shown.cleared if row.file.startswith(above)],
    )
