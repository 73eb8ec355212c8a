"""The compiled library: built from its sources, verified when loaded, and optional."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rmqtool.kernels.build import compiler, header
from rmqtool.kernels.build.compiler import NotCompiled, build
from rmqtool.kernels.load.library import Implementation, NotLoadable, is_compiled, load
from rmqtool.kernels.load.stamp import SOURCES, VARIANTS, library_name, stamp
from tests.amounts import by_turns

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(compiler.own_compiler() is None, reason="no C compiler")


def test_the_committed_header_is_what_the_layouts_give() -> None:
    assert (Path(SOURCES) / "layouts.h").read_text(encoding="utf-8") == header.source()


def test_compiled_code_is_used_here() -> None:
    assert is_compiled(None)
    assert is_compiled(Implementation.COMPILED)
    assert not is_compiled(Implementation.PLAIN)


def test_the_environment_may_ask_for_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTOOL_KERNELS", "plain")
    assert not is_compiled(None)
    assert is_compiled(Implementation.COMPILED)


def test_it_is_loaded_from_an_archive(tmp_path: Path) -> None:
    """As of Spark's ``--py-files``: the package is not a directory there."""
    with zipfile.ZipFile(tmp_path / "rmqtool.zip", "w") as packed:
        for path in [*ROOT.glob("formats/**/*"), *ROOT.glob("rmqtool/**/*")]:
            if path.is_file() and path.suffix in (".py", ".c", ".h", ".so", ".dylib", ".java"):
                packed.write(path, path.relative_to(ROOT))
    code = f"""
import rmqtool
from rmqtool.analytics.source.planner import planner
from rmqtool.kernels.load.library import is_compiled
print(rmqtool.__file__, is_compiled(None), rmqtool.read_arrow({str(ROOT / "examples/store")!r}).read_all().num_rows)
print("class Catalog" in planner._SOURCE.read_text(encoding="utf-8"))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "rmqtool.zip"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "rmqtool.zip/rmqtool/__init__.py"), "True", "609", "True"]
    assert done.stderr == ""
    assert os.listdir(tmp_path) == ["rmqtool.zip"]


@by_turns(13)
@needs_compiler
def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    made = build(tmp_path, ["-Werror", "-Wshadow", "-Wstrict-prototypes"])
    assert [path.name for path in made] == [library_name(v, sys.platform) for v in VARIANTS[os.uname().machine]]


def copied(folder: Path) -> str:
    """A copy of the sources and libraries."""
    shutil.copytree(SOURCES, folder / "c")
    return str(folder / "c")


def test_a_library_of_other_sources_is_not_loaded(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    load(folder)
    with open(f"{folder}/layouts.h", "a", encoding="utf-8") as file:
        file.write("\n")
    with pytest.raises(NotLoadable, match="does not match its sources"):
        load(folder)


def test_what_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    path = Path(folder, library_name(VARIANTS[os.uname().machine][0], sys.platform))
    path.unlink()
    with pytest.raises(NotLoadable, match="is missing"):
        load(folder)
    path.write_bytes(b"no library")
    with pytest.raises(NotLoadable, match="cannot be loaded"):
        load(folder)


def test_without_a_library_everything_works_after_one_warning(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "*.dylib", "__pycache__")
    for package in ("rmqtool", "formats"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    script = (
        "from rmqtool.kernels.crc import crc32\n"
        "from rmqtool.kernels.load.library import Implementation, NotLoadable\n"
        "print(crc32(b'123456789'), crc32(b''))\n"
        "try: crc32(b'', code=Implementation.COMPILED)\n"
        "except NotLoadable as err: print('refused')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout == f"{0xCBF43926} 0\nrefused\n"
    assert result.stderr.count("warning: ") == result.stderr.count("\n") == 1
    assert "is missing; working in plain Python" in result.stderr
    assert "pip install -e ." in result.stderr


def test_a_compiler_that_refuses_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotCompiled, match="false failed"):
        build(tmp_path, command=["false"])
    with pytest.raises(NotCompiled, match="no-such-compiler"):
        build(tmp_path, command=["/no-such-compiler"])
    assert list(tmp_path.iterdir()) == []


def test_the_stamp_is_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("1")
    first = stamp(str(tmp_path))
    (tmp_path / "a.so").write_text("1")
    assert stamp(str(tmp_path)) == first
    (tmp_path / "a.c").rename(tmp_path / "b.c")
    assert stamp(str(tmp_path)) != first
