"""Existing files in an output are never trusted: hostile journals, positions, leftovers, links."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.analytics.dump.dump import dump_to_parquet
from rmqtool.analytics.dump.names import JOURNAL, MANIFEST, RUN, STAGING
from rmqtool.analytics.dump.output import SUCCESS, open_output
from rmqtool.analytics.dump.position import Position
from rmqtool.analytics.dump.report import DumpOptions
from rmqtool.errors import Refused
from rmqtool.store.layout.paths import StoreLayout
from tests.analytics.helpers import log_of, store_of
from tests.cli.running import rmqtool

SIZE = 3000


def a_store(folder: Path) -> StoreLayout:
    return store_of(folder, *(log_of(["A", "B"] * 5, base=SIZE * number) for number in range(3)), size=SIZE)


def dump(layout: StoreLayout, out: Path, **options: Any) -> None:
    dump_to_parquet(layout, str(out), DumpOptions(runner="local", **options))


def everything(folder: Path) -> dict[str, Any]:
    """Every file and link below a directory, with its content."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def journal(**told: Any) -> str:
    return json.dumps({"run": {"run": 1}, "files": {}, "remove": {}, "manifest": {"files": []}, **told})


NAMES = (
    "../victim.parquet", "../../victim.parquet", "a=1/../../victim.parquet", "/victim.parquet", "x/../a.parquet", "..",
    ".", "", "a=1//b.parquet", "notes.txt", "_SUCCESS", "_rmqtool.json", ".hidden.parquet", "a=1\\..\\x.parquet",
    "a=1/b\x00.parquet", "sub/part.parquet", "_x/part.parquet", f"{STAGING}/part.parquet",
)  # fmt: skip
HOSTILE = [
    *(journal(remove={name: 6}) for name in NAMES),
    *(journal(files={name: 6}) for name in NAMES),
    # the form of earlier versions
    *(json.dumps({"remove": [name], "manifest": {"files": []}}) for name in NAMES),
    journal(remove={"part-0.parquet": 3}),  # another run than what is here
    journal(files={"part-0.parquet": 3}),
    journal(remove=["part-0.parquet"]),
    journal(remove={"part-0.parquet": True}),
    journal(remove={"part-0.parquet": -1}),
    journal(manifest=None),
    "[" * 100_000,
    "{", "", "null", "[]", '"x"', "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"since_last": True}])
@pytest.mark.parametrize("staged", [False, True])
def test_a_journal_that_was_planted_is_not_carried_out(staged: bool, options: dict[str, Any], tmp_path: Path) -> None:
    layout = a_store(tmp_path)
    (tmp_path / "parent" / "victim.parquet").parent.mkdir()
    (tmp_path / "parent" / "victim.parquet").write_text("victim")
    (tmp_path / "victim.parquet").write_text("victim")
    out = tmp_path / "parent" / "out"
    dump(layout, out, since_last=True)
    (out / "part-0.parquet").write_text("old")
    if staged:
        (out / STAGING).mkdir()
        (out / STAGING / RUN).write_text('{"run": 2}')
    for text in HOSTILE[:: 9 if "overwrite" in options else 1]:
        (out / JOURNAL).write_text(text, errors="surrogateescape")
        before = everything(tmp_path)
        if options.get("overwrite"):
            before = {name: held for name, held in before.items() if not name.startswith("parent/out/")}
            dump(layout, out, **options)  # takes the place of all of it, as a whole
            after = everything(tmp_path)
            assert {name: held for name, held in after.items() if not name.startswith("parent/out/")} == before
            assert not (out / JOURNAL).exists()
            continue
        with pytest.raises(Refused):
            dump(layout, out, **options)
        assert everything(tmp_path) == before, text


def test_the_case_that_was_reported(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path), tmp_path / "out"
    out.mkdir()
    (tmp_path / "victim").write_text("the only copy")
    (out / "x.parquet").write_text("x")
    (out / JOURNAL).write_text(json.dumps({"remove": ["../victim"], "manifest": {"files": []}}))
    told = rmqtool("dump-to-parquet", layout.root, str(out), "--engine", "local")
    assert told.code == 4
    assert "exists and is not empty" in told.err
    assert (tmp_path / "victim").read_text() == "the only copy"
    assert sorted(os.listdir(out)) == [JOURNAL, "x.parquet"]


def link_in_out(out: Path, victim: Path) -> None:
    (out / "topicDir=x").symlink_to(victim)


def link_for_a_file(out: Path, victim: Path) -> None:
    (out / "part-9.parquet").symlink_to(victim / "a.parquet")


def staging_is_a_link(out: Path, victim: Path) -> None:
    (out / STAGING).symlink_to(victim)
    out.with_name(f".{out.name}.rmqtool-new").symlink_to(victim)


def staging_has_a_link(out: Path, victim: Path) -> None:
    for staging in (out / STAGING, out.with_name(f".{out.name}.rmqtool-new")):
        staging.mkdir()
        (staging / "topicDir=x").symlink_to(victim)


def staging_is_somebody_elses(out: Path, victim: Path) -> None:
    for staging in (out / STAGING, out.with_name(f".{out.name}.rmqtool-new")):
        staging.mkdir()
        (staging / "notes.txt").write_text("mine")


@pytest.mark.parametrize("options", [{"overwrite": True}, {"since_last": True}])
@pytest.mark.parametrize(
    "plant", [link_in_out, link_for_a_file, staging_is_a_link, staging_has_a_link, staging_is_somebody_elses]
)
def test_links_and_what_is_not_ours_stay(
    plant: Callable[[Path, Path], None], options: dict[str, Any], tmp_path: Path
) -> None:
    layout, out, victim = a_store(tmp_path), tmp_path / "p" / "out", tmp_path / "victim"
    (victim / "topicDir=x").mkdir(parents=True)
    (victim / "a.parquet").write_text("victim")
    (victim / "topicDir=x" / "b.parquet").write_text("victim")
    (tmp_path / "p").mkdir()
    dump(layout, out, since_last=True)
    plant(out, victim)
    before = everything(tmp_path)
    with pytest.raises(Refused):
        dump(layout, out, **options)
    assert everything(tmp_path) == before


def test_what_has_the_name_of_an_old_output_is_not_deleted(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path), tmp_path / "out"
    (tmp_path / ".out.rmqtool-old").mkdir()
    (tmp_path / ".out.rmqtool-old" / "thesis.tex").write_text("mine")
    with pytest.raises(Refused, match="has files that are not from a dump"):
        dump(layout, out)
    assert (tmp_path / ".out.rmqtool-old" / "thesis.tex").read_text() == "mine"


def test_a_copy_that_was_made_in_the_middle_of_a_publication_loses_nothing(tmp_path: Path) -> None:
    """The journal was copied but not the files it moves: the files it removes are the only ones."""
    layout, out = a_store(tmp_path), tmp_path / "out"
    dump(layout, out, since_last=True)
    old = min(out.glob("*.parquet"))
    run = {"run": 1}
    (out / STAGING).mkdir()
    (out / STAGING / RUN).write_text(json.dumps(run))
    files = {"files": [{"path": "part-1.parquet"}]}
    (out / JOURNAL).write_text(
        journal(run=run, remove={old.name: old.stat().st_size}, files={"part-1.parquet": 9}, manifest=files)
    )
    before = everything(out)
    with pytest.raises(Refused, match=r"tells of 'part-1.parquet' with 9 bytes, which is not here so"):
        dump(layout, out, since_last=True)
    assert everything(out) == before


POSITIONS = [
    None, 7, [], {}, {"next": 1}, {"next": "1", "last": -1, "last_end": 0, "last_crc": 0},
    {"next": -5, "last": -1, "last_end": 0, "last_crc": 0}, {"next": 1.5, "last": -1, "last_end": 0, "last_crc": 0},
    {"next": True, "last": -1, "last_end": 0, "last_crc": 0}, {"next": 10, "last": 5, "last_end": 20, "last_crc": 0},
    {"next": 1 << 70, "last": 5, "last_end": 20, "last_crc": 0}, {"next": 9, "last": 5, "last_end": 4, "last_crc": 0},
    {"next": 9, "last": -9, "last_end": 4, "last_crc": 0}, {"next": 9, "last": 5, "last_end": 8, "last_crc": 1 << 33},
    {"next": 9, "last": 5, "last_end": 8, "last_crc": 1, "more": 2},
]  # fmt: skip


@pytest.mark.parametrize("position", POSITIONS)
def test_positions_are_checked_before_they_are_used(position: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="position"):
        Position.from_dict(position)
    layout, out = a_store(tmp_path), tmp_path / "out"
    dump(layout, out, since_last=True)
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps({**manifest, "position": position}))
    before = everything(out)
    with pytest.raises(Refused, match="no position to continue from"):
        dump(layout, out, since_last=True)
    assert everything(out) == before


def test_files_that_a_manifest_names_are_not_touched(tmp_path: Path) -> None:
    layout, out = a_store(tmp_path), tmp_path / "p" / "out"
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "victim.parquet").write_text("victim")
    dump(layout, out, since_last=True)
    manifest = json.loads((out / MANIFEST).read_text())
    manifest["files"] += [{"path": "../victim.parquet"}, {"path": "../../../p/victim.parquet"}]
    (out / MANIFEST).write_text(json.dumps(manifest))
    dump(layout, out, since_last=True)
    assert (tmp_path / "p" / "victim.parquet").read_text() == "victim"


def test_an_interrupted_publication_is_finished_by_who_adds_or_replaces(tmp_path: Path) -> None:
    place = tmp_path / "out"
    target = open_output(str(place), [], grow=True)
    target.begin({"run": 1})
    (Path(target.staging.path) / "part-1.parquet").write_text("new")
    target.leave()
    (place / JOURNAL).write_text(journal(files={"part-1.parquet": 3}, manifest={"files": [{"path": "part-1.parquet"}]}))
    with pytest.raises(Refused, match="a dump was interrupted there"):
        open_output(str(place), [])
    assert not (place / "part-1.parquet").exists()
    again = open_output(str(place), [], grow=True)
    again.hold()
    again.discard()
    assert sorted(os.listdir(place)) == [SUCCESS, MANIFEST, "part-1.parquet"]
