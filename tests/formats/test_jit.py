"""Machine code: what it computes, where it is kept, and that nothing hangs on its being kept."""

import ctypes
import os
import platform
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats import jit, jit_cache, jit_compile, kernel_crc
from formats.jit import byte_at, kernel, part, store_i32, word_at
from formats.jit_link import laid_out
from formats.kernel_crc import crc32

ROOT = Path(__file__).parents[2]
SUFFIX = ".rmqtool-code"
_USE = """
import sys
import formats.kernel_crc as k
print(k.crc32(b'123456789', tables=True), 'numba' in sys.modules, k.__file__)
"""
CRC = str(0xCBF43926)
BIAS = 7


def run(folder: Path, code: str, **environment: str) -> list[str]:
    env = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The package where nothing can be kept beside it."""
    path = tmp_path / "packages.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in (ROOT / "formats").rglob("*.py"):
            packed.write(file, file.relative_to(ROOT))
    return path


# -- where it is kept -------------------------------------------------------------------------------------------------


def test_once_compiled_it_is_loaded_without_the_compiler() -> None:
    assert crc32(b"123456789", tables=True) == 0xCBF43926
    assert run(ROOT, _USE, PYTHONPATH=str(ROOT))[:2] == [CRC, "False"]


_LOADED = """
import sys
import formats.kernel_crc as k
print(k.crc32(b'123456789', tables=True), any(name.startswith('llvmlite') for name in sys.modules))
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux", reason="elsewhere LLVM links what it has compiled"
)
def test_what_is_kept_needs_no_llvm() -> None:
    assert run(ROOT, _LOADED, PYTHONPATH=str(ROOT)) == [CRC, "False"]


def test_code_that_cannot_be_laid_out_is_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [None] * 3
    code = jit_compile.compiled(kernel_crc._crc._function, kinds)  # type: ignore[attr-defined]
    data = b"123456789"
    for refuses in ("nothing", "layout", "memory"):
        with monkeypatch.context() as patch:
            if refuses == "layout":
                patch.setattr(jit, "laid_out", lambda *_args: None)
            elif refuses == "memory":
                patch.setattr(jit_cache, "executable", lambda _code: None)
            function = jit._linked(f"linked-{refuses}", code)
        block = (ctypes.c_int64 * 5)(jit.address_of(data)[0], len(data), 0)
        function(block)
        assert block[1] == 0xCBF43926
    assert laid_out(b"", jit.ENTRY) is laid_out(b"\x7fELF" + bytes(80), jit.ENTRY) is None
    assert laid_out(code, "another") is None
    if laid_out(code, jit.ENTRY) is not None:
        at = int.from_bytes(code[40:48], "little")  # the tables of this kernel, if they could be written to
        flags = [at + 64 * number + 8 for number in range(int.from_bytes(code[60:62], "little"))]
        spoilt = bytearray(code)
        for place in flags:
            spoilt[place] |= spoilt[place] == 2
        assert spoilt != code
        assert laid_out(bytes(spoilt), jit.ENTRY) is None


def test_the_processor_is_told_without_llvm_or_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = jit._machine()
    monkeypatch.setattr(jit_cache, "processor", lambda: "")
    jit._machine.cache_clear()
    try:
        others = jit._machine()
    finally:
        jit._machine.cache_clear()
    assert others[0] == jit._llvm().get_process_triple()
    assert own[-1] == others[-1]
    assert jit_cache.stamp(None) == jit_cache.stamp("/no/such/file") == ""


def test_where_the_package_cannot_be_written_the_users_cache_is_used(tmp_path: Path, archive: Path) -> None:
    told = [run(tmp_path, _USE, PYTHONPATH=str(archive)) for _ in range(2)]
    assert [each[:2] for each in told] == [[CRC, "True"], [CRC, "False"]]
    assert told[0][2].startswith(str(archive))
    (kept,) = (tmp_path / "cache" / "rmqtool" / "code").iterdir()
    assert kept.name.startswith("formats.kernel_crc.crc-")


@pytest.mark.parametrize("spoil", ["empty", "short", "flipped", "directory"])
def test_what_is_damaged_is_made_anew(spoil: str, tmp_path: Path, archive: Path) -> None:
    run(tmp_path, _USE, PYTHONPATH=str(archive))
    (kept,) = (tmp_path / "cache" / "rmqtool" / "code").iterdir()
    sound = kept.read_bytes()
    kept.unlink()
    if spoil == "directory":
        kept.mkdir()
    else:
        middle = len(sound) // 2
        flipped = sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]
        kept.write_bytes({"empty": b"", "short": sound[:-1], "flipped": flipped}[spoil])
    assert run(tmp_path, _USE, PYTHONPATH=str(archive))[:2] == [CRC, "True"]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]  # no half file beside it
    assert spoil == "directory" or kept.read_bytes()[32:] == sound[32:]


def test_code_that_others_could_have_written_is_not_run(tmp_path: Path, archive: Path) -> None:
    run(tmp_path, _USE, PYTHONPATH=str(archive))
    folder = tmp_path / "cache" / "rmqtool" / "code"
    folder.chmod(0o777)
    assert run(tmp_path, _USE, PYTHONPATH=str(archive))[:2] == [CRC, "True"]
    assert run(tmp_path, _USE, PYTHONPATH=str(archive))[:2] == [CRC, "False"]  # ~/.cache took it
    assert len(list((tmp_path / ".cache" / "rmqtool" / "code").iterdir())) == 1


def test_without_any_place_code_is_compiled_anew(tmp_path: Path, archive: Path) -> None:
    for _ in range(2):
        told = run(tmp_path, _USE, PYTHONPATH=str(archive), XDG_CACHE_HOME="relative", HOME="/dev/null")
        assert told[:2] == [CRC, "True"]
    assert list(tmp_path.iterdir()) == [archive]


def test_a_full_disk_costs_the_cache_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jit_cache, "_places", lambda: iter([str(tmp_path)]))
    monkeypatch.setattr(os, "replace", full)

    @kernel
    def doubled(value: Any) -> Any:
        return value * 2

    assert [doubled(21), doubled(-4)] == [42, -8]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("level", [0, 1, 2])
def test_code_is_not_run_from_a_place_that_others_may_exchange(
    level: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = tmp_path / "cache"
    place = root / "rmqtool" / "code"
    monkeypatch.setattr(jit_cache, "_places", lambda: iter([str(place)]))
    root.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        jit_cache.store("kernel", b"code")
        folder = (root, root / "rmqtool", place)[level]
        if level:
            assert folder.stat().st_mode & 0o077 == 0  # whatever the umask is
        folder.chmod(0o777)
        assert jit_cache.stored("kernel") is None
        jit_cache.store("other", b"code")
        assert [path.name for path in place.iterdir()] == ["kernel.rmqtool-code"]
        folder.chmod(0o1777)
        assert jit_cache.stored("kernel") == (None if level == 2 else b"code")
        folder.chmod(0o755)
        os.chown(folder, 12345, -1)
        assert jit_cache.stored("kernel") is None
    except PermissionError:
        pytest.skip("only root gives directories away")
    finally:
        os.umask(before)


@pytest.mark.parametrize(("name", "mode"), [("__pycache__", 0o755), ("code", 0o700)])
def test_pythons_own_cache_stays_readable_for_all(
    name: str, mode: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jit_cache, "_places", lambda: iter([str(tmp_path / name)]))
    before = os.umask(0o022)
    try:
        jit_cache.store("kernel", b"code")
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_mode & 0o777 == mode
    assert jit_cache.stored("kernel") == b"code"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of what is compiled, in a cache that is empty at first."""
    names: list[str] = []
    compiled = jit_compile.compiled

    def told(function: Callable[..., Any], kinds: Any) -> bytes:
        names.append(function.__name__)
        return compiled(function, kinds)

    monkeypatch.setattr(jit_cache, "_places", lambda: iter([str(tmp_path)]))
    monkeypatch.setattr(jit_compile, "compiled", told)
    return names


def biased(bias: int) -> Callable[..., Any]:
    """A kernel whose part has a constant."""
    names: dict[str, Any] = {"part": part, "kernel": kernel, "BIAS": bias, "__name__": __name__}
    code = "@part\ndef add(value):\n    return value + BIAS\n\n@kernel\ndef run(value):\n    return add(value)\n"
    exec(code, names)  # functions of a module of their own
    found: Callable[..., Any] = names["run"]
    return found


def test_code_of_another_constant_is_other_code(made: list[str]) -> None:
    assert [biased(1)(1), biased(2)(1), biased(1)(5)] == [2, 3, 6]
    assert made == ["run", "run"]


def test_threads_wait_for_one_that_compiles(made: list[str]) -> None:
    run, found = biased(10), []
    threads = [threading.Thread(target=lambda n=n: found.append(run(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [10, 11, 12, 13, 14, 15]
    assert made == ["run"]


# -- what it takes and gives ------------------------------------------------------------------------------------------


@kernel
def _nothing(values: Any) -> None:
    values[0] = BIAS


@kernel
def _facts(values: Any, flag: Any) -> Any:
    total = 0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            total += values[i, j] * (10 * i + j)
    return total, len(values), values.shape[1], 5 if flag else -5


@kernel
def _bytes(at: Any, length: Any, to: Any) -> Any:
    total = 0
    for i in range(length):
        total += byte_at(at + i)
    store_i32(to, total)
    return word_at(at)


@kernel
def _needs_memory(count: Any) -> Any:
    return len(np.zeros(count))


def test_results() -> None:
    values = np.zeros(3, np.int64)
    assert _nothing(values) is None
    assert values.tolist() == [BIAS, 0, 0]
    text, out = b"\x01\x02\x03\x04\x05\x06\x07\x88", np.zeros(1, ">i4")
    address, keep = jit.address_of(text)
    assert _bytes(address, 8, out.ctypes.data) == int.from_bytes(text, "little", signed=True)
    assert out[0] == sum(keep)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_arrays_of_any_shape(dtype: Any) -> None:
    wide = (np.arange(63).reshape(7, 9) % 11).astype(dtype)
    for each in (wide, wide[1:3, 2:7], wide[::2, ::-1], wide.T, wide[:0], np.asfortranarray(wide)):
        i, j = np.indices(each.shape)
        expected = int((each.astype(int) * (10 * i + j)).sum())
        for flag in (True, False):
            assert _facts(each, flag) == (expected, *each.shape, 5 if flag else -5)


def test_arrays_that_the_processor_cannot_take() -> None:
    misaligned = np.frombuffer(bytes(33), np.uint8)[1:].view(np.int64).reshape(2, 2)
    for each in (misaligned, np.zeros((2, 2), ">i8"), np.zeros((2, 2), np.float64)):
        with pytest.raises(ValueError, match="machine's own"):
            _facts(each, True)


def test_what_would_need_more_than_the_processor_is_no_kernel() -> None:
    with pytest.raises(AssertionError, match=r"needs_memory needs .*NRT"):
        _needs_memory(3)


def test_what_a_digest_cannot_tell_is_no_kernel() -> None:
    def uses_a_class() -> Any:
        return Path

    def has_a_function() -> Any:
        return lambda: 1

    with pytest.raises(TypeError, match="uses_a_class: kernels cannot use Path"):
        jit.digest(uses_a_class)
    with pytest.raises(TypeError, match="functions of their own"):
        jit.digest(has_a_function)


def test_parts_are_for_kernels_only() -> None:
    @part
    def helper(value: Any) -> Any:
        return value

    for each in (helper, byte_at):
        with pytest.raises(TypeError, match="for kernels only"):
            each(1)


def test_what_is_not_there_has_no_address() -> None:
    assert jit.function_address(str(Path(__file__)), "crc32_gzip_refl") == 0
    from isal import isal_zlib

    assert jit.function_address(isal_zlib.__file__, "no_such_function") == 0
