"""Compiled code needs no place for a cache; it only starts faster with one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from formats import jit

needs_locators = pytest.mark.skipif(
    not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"), reason="this Numba always looks for a cache in all places"
)
_USE = "import formats.kernel_crc as k; print(k.crc32(b'123456789', tables=True))"


def run(tmp_path: Path, **environment: str) -> str:
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _USE], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@needs_locators
def test_where_the_package_cannot_be_written_the_users_cache_is_used(tmp_path: Path) -> None:
    env = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserWideCacheLocator"}
    assert run(tmp_path, **env) == str(0xCBF43926)
    assert list((tmp_path / "cache").rglob("*.nbi"))


@needs_locators
def test_without_any_place_for_a_cache_code_is_compiled_anew(tmp_path: Path) -> None:
    env = {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}  # of which there is none for a plain file
    assert run(tmp_path, **env) == str(0xCBF43926)
    assert not list(tmp_path.rglob("*.nbi"))


def test_a_full_disk_costs_the_cache_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    def full(*_args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", full)

    @jit.kernel
    def doubled(value: int) -> int:
        return value * 2

    assert doubled(21) == 42
    assert doubled(4) == 8


def test_what_is_not_there_has_no_address() -> None:
    assert jit.function_address(str(Path(__file__)), "crc32_gzip_refl") == 0
    from isal import isal_zlib

    assert jit.function_address(isal_zlib.__file__, "no_such_function") == 0
