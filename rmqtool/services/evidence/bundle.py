"""Pack what a support case needs of a store into one archive, without messages, hosts and secrets.

The archive has plain files: JSON, NDJSON and text. What is not known to be harmless is replaced by its length and a
keyed hash (:mod:`rmqtool.services.evidence.masking`); the manifest counts what was replaced and says what is missing.
"""

import io
import json
import os
import re
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from formats.config.files import kind_of
from rmqtool.contract import PlainRow
from rmqtool.errors import BadValue, RmqError, UnreadableStore
from rmqtool.progress import stage
from rmqtool.rules.releases import RELEASES
from rmqtool.services.evidence.masking import Mask, names_in
from rmqtool.services.evidence.places import FindingPlaces
from rmqtool.services.lookup.info import StoreInfo, store_info
from rmqtool.store.check.common.findings import Finding
from rmqtool.store.check.run import check_store
from rmqtool.store.config.files import list_configs, raw_config
from rmqtool.store.config.settings import Setting, settings_of
from rmqtool.store.disk.outputs import check_output, write_output
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.recovery.command import plan
from rmqtool.version import __version__

LEAST, MOST = 64 << 10, 16 << 20  # bytes of a bundle: the least limit, and the default
_HEAD = 2 * tarfile.BLOCKSIZE  # of each file in the archive, including the padding of its last block
_RESERVE = 32 << 10  # for the manifest and the end of the archive
_PER_CODE = 10  # findings of a code whose bytes are shown
QUOTING = ("timeline-no-message", "half-no-message", "pop-record", "pop-record-key", "timer-lost")
_OF_SETTINGS = ("conf-unknown", "conf-release", "conf-value")  # codes
_SECRET = ("secret", "password", "passwd", "key", "token", "credential", "user", "auth", "acl", "sasl", "tls")
_PLAIN_VALUES = {  # of settings that are texts
    "brokerRole": r"ASYNC_MASTER|SYNC_MASTER|SLAVE",
    "flushDiskType": r"ASYNC_FLUSH|SYNC_FLUSH",
    "storeType": r"default|defaultRocksDB",
    "messageDelayLevel": r"(\d+[smhd] *)+",
    "deleteWhen": r"[\d;]+",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRow(PlainRow):
    """A bundle that was made.

    Attributes:
        path: of the archive.
        bytes: its size.
        files: number of files in it.
        findings: of ``check``, of which ``places`` are shown with their bytes.
        replaced: values that were replaced by length and hash.
        incomplete: files of which a part did not fit.
    """

    path: str
    bytes: int
    files: int
    findings: int
    places: int
    replaced: int
    incomplete: int


class _Archive:
    """A tar archive in memory, up to a number of bytes before compression."""

    def __init__(self, most: int) -> None:
        self._left, self._now = most - _RESERVE, int(time.time())
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w:gz")  # noqa: SIM115 closed by finish
        self.contents: list[dict[str, Any]] = []

    def add(self, name: str, lines: Iterable[str], share: float = 1.0) -> None:
        """Add a file; lines that do not fit are left out and counted.

        Args:
            share: of the room that is left, how much this file may take.
        """
        room = int(self._left * share) - _HEAD
        kept, left_out, size = [], 0, 0
        for line in lines:
            data = line.encode("utf-8", "backslashreplace") + b"\n"
            if left_out or size + len(data) > room:
                left_out += 1
            else:
                kept.append(data)
                size += len(data)
        if room < 0:
            self.contents.append({"file": name, "lines": 0, "leftOutLines": left_out})
            return
        self._left -= size + _HEAD
        self._put(name, b"".join(kept))
        self.contents.append({"file": name, "lines": len(kept), "leftOutLines": left_out})

    def finish(self, manifest: dict[str, Any]) -> bytes:
        """Add the manifest, and return the archive."""
        self._put("manifest.json", json.dumps(manifest, indent=1).encode() + b"\n")
        self._tar.close()
        return self._buffer.getvalue()

    def _put(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(f"evidence/{name}")
        member.size, member.mtime, member.mode = len(data), self._now, 0o600
        self._tar.addfile(member, io.BytesIO(data))


def collect_evidence(layout: StoreLayout, out: str, *, most: int = MOST, hide_names: bool = False) -> BundleRow:
    """Write a bundle about a store. The store is only read.

    Args:
        out: the archive to create.
        most: maximum size in bytes.
        hide_names: replace names of topics and groups, too; system topics keep theirs.

    Raises:
        BadValue: ``most`` is less than :data:`LEAST`.
        Refused: ``out`` exists, or lies in the store.
        OSError: it cannot be written.
    """
    if most < LEAST:
        raise BadValue(f"--most: a bundle needs at least {LEAST} bytes")
    check_output(out, layout.root)
    archive, warnings, layout = _Archive(most), Counter[str](), layout.passing_over()
    info = store_info(layout)
    with stage("checking the store"):
        findings = list(check_store(layout))
    mask = Mask(layout.root, names_in(layout, info, findings), hide_names=hide_names)

    def record_failure(part: str, err: RmqError | OSError) -> None:
        warnings[mask.text(f"{part}: {err}")] += 1

    archive.add("info.json", _lines(_info(info, mask)))
    try:
        recovery = {**plan(layout).to_dict(), "store": "STORE"}
        archive.add("recovery.json", _lines(mask.plain(recovery)))
    except (RmqError, OSError) as err:
        record_failure("recovery.json", err)
    if layout.conf.values:
        archive.add("broker.conf", _settings(layout.conf.values, mask))
    for config in list_configs(layout):
        name = config.name.removesuffix(".bak")
        if kind_of(name) is None:
            continue
        try:
            value = mask.config(raw_config(layout, config.name))
        except (RmqError, OSError) as err:
            record_failure(f"config/{config.name}", err)
        else:
            archive.add(f"config/{config.name}", _lines(value), 0.3)
    archive.add("check.ndjson", (json.dumps(finding_row(each, mask)) for each in findings), 0.5)
    archive.add("files.ndjson", (json.dumps(row) for row in _files(layout, mask)), 0.6)
    shown: list[str] = []
    places = 0
    for lines in _show_bytes(layout, findings, mask):
        places += 1
        shown += [*lines, ""]
    archive.add("places.txt", shown)
    data = archive.finish(
        {
            "about": "evidence about a RocketMQ store; it has no message in it",
            "rmqtool": __version__,
            "madeTimestamp": int(time.time() * 1000),
            "contents": archive.contents,
            "replaced": mask.replaced,
            "replacedBy": "the length in bytes and a hash with a random key that was not kept; equal values of this "
            "bundle have equal hashes",
            "notIncluded": [
                "bodies, keys, tags and properties of messages",
                "addresses of clients and brokers",
                "accounts and access lists",
                "settings of broker.conf that are texts, unknown, or may be secret",
            ],
            "namesHidden": hide_names,
            "warnings": [text[:500] for text in warnings][:20],
        }
    )
    write_output(out, data)
    return BundleRow(
        path=out,
        bytes=len(data),
        files=len(archive.contents) + 1,
        findings=sum(finding.count for finding in findings),
        places=places,
        replaced=sum(mask.replaced.values()),
        incomplete=sum(bool(item["leftOutLines"]) for item in archive.contents),
    )


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, ensure_ascii=False).splitlines()


def _info(info: StoreInfo, mask: Mask) -> Any:
    facts = {**info.to_dict(), "store": "STORE"}
    if info.identity is not None:
        facts["identity"] = mask.value(info.identity, "hosts")
    return mask.plain(facts)


def finding_row(finding: Finding, mask: Mask) -> dict[str, Any]:
    """The fields of a finding, without the advice, which ``explain`` has."""
    row = finding.to_dict()
    del row["fix"], row["consequence"]
    for name in ("expected", "actual"):
        text = row[name]
        if text is None:
            continue
        if finding.code in QUOTING:
            row[name] = mask.value(text, "ids")
        elif finding.code in _OF_SETTINGS and name == "actual":
            row[name] = _named_setting(text, mask)
        else:
            row[name] = mask.text(text)
    row["file"] = mask.text(row["file"])
    if row["topic"] is not None:
        row["topic"] = mask.name(row["topic"])
    return row


def _named_setting(text: str, mask: Mask) -> str:
    """The setting that a finding is about, without its value; settings that no broker knows may be anything."""
    name = text.partition("=")[0].partition(",")[0]
    return name if _known_setting(name) else mask.value(text, "settings")


def _known_setting(name: str) -> Setting | None:
    return next((setting for release in RELEASES.values() if (setting := settings_of(release).get(name))), None)


def _settings(values: dict[str, str], mask: Mask) -> Iterator[str]:
    for name, text in values.items():
        setting = _known_setting(name)
        shown = name if setting is not None else mask.value(name, "settings")
        safe = setting is not None and not any(word in name.lower() for word in _SECRET)
        if safe and setting is not None and setting.kind != "String" and setting.takes(text.strip()) is not None:
            kept = text.strip().lower() in ("true", "false") or setting.kind != "boolean"
        else:
            kept = safe and re.fullmatch(_PLAIN_VALUES.get(name, "(?!)"), text.strip()) is not None
        yield f"{shown}={mask.text(text.strip()) if kept else mask.value(text, 'settings')}"


def _files(layout: StoreLayout, mask: Mask) -> Iterator[dict[str, Any]]:
    """Every file of the store, and of log directories outside it."""
    seen: set[str] = set()
    folders = [layout.root, *layout.commit_log_paths]
    while folders:
        folder = folders.pop(0)
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        for entry in sorted(layout.entries_at(folder), key=lambda entry: entry.name):
            path = os.path.join(folder, entry.name)
            if entry.is_dir():
                folders.append(path)
                continue
            row: dict[str, Any] = {"file": mask.text(path), "bytes": None, "modifiedTimestamp": None}
            with suppress(RmqError, OSError):  # removed meanwhile, or a dangling link
                row |= {"bytes": entry.size, "modifiedTimestamp": entry.mtime_ns // 1_000_000}
            yield row


def _show_bytes(layout: StoreLayout, findings: list[Finding], mask: Mask) -> Iterator[list[str]]:
    """The bytes at findings, a few of each code."""
    places, listed = FindingPlaces(layout, mask), Counter[str]()
    for finding in findings:
        if listed[finding.code] == _PER_CODE:
            continue
        try:
            lines = places.show(finding)
        except UnreadableStore:  # which is a finding, too
            continue
        if lines:
            listed[finding.code] += 1
            yield [f"{finding.code}: {mask.text(finding.file)} at byte {finding.offset}", *lines]
