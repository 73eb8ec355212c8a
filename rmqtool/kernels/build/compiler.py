"""Compiles the C sources into one shared library per processor variant.

Uses the compiler in ``$CC``, or ``cc``, ``gcc`` or ``clang``, or else the one in the package ``ziglang``. The code uses
no Python headers, so one library works with every Python version.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rmqtool.kernels.load.stamp import SOURCES, VARIANTS, library_name, stamp

FLAGS = ["-std=c11", "-O3", "-fno-strict-aliasing", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra"]
# the meaning of x86-64-v3, in flags that older compilers know too
FEATURES = {"x86-64-v3": ["-mavx2", "-mbmi", "-mbmi2", "-mfma", "-mlzcnt", "-mmovbe", "-mpopcnt"]}
_GLIBC = (2, 17)  # target of zig: manylinux2014
_SECONDS = 600


class NotCompiled(Exception):
    """There is no compiler, or compilation failed."""


class Compiler(NamedTuple):
    """A command that compiles C, and the platform tag for wheels built with it."""

    command: list[str]
    platform_tag: str


def own_compiler() -> list[str] | None:
    """Return the machine's own C compiler, or None if it has none."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else []) + [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    return None


def compiler() -> Compiler:
    """Return the compiler to use.

    Raises:
        NotCompiled: there is no compiler.
    """
    own_tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    command = own_compiler()
    if command is not None:
        return Compiler(command, own_tag)
    if find_spec("ziglang") is None:
        raise NotCompiled("no C compiler: neither $CC, cc, gcc nor clang, and the package ziglang is not installed")
    zig = [sys.executable, "-m", "ziglang", "cc"]
    if sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc":
        major, minor = _GLIBC
        machine = platform.machine()
        return Compiler(
            [*zig, "-target", f"{machine}-linux-gnu.{major}.{minor}"], f"manylinux_{major}_{minor}_{machine}"
        )
    return Compiler(zig, own_tag)


def build(folder: Path, extra: list[str] | None = None, command: list[str] | None = None) -> list[Path]:
    """Compile all variants for this machine into a folder; return the libraries.

    Args:
        extra: additional flags, for example for sanitizers.
        command: compiler command; looked up by default.

    Raises:
        NotCompiled: there is no compiler, compilation failed, or the machine is not supported.
    """
    machine = platform.machine()
    if os.name != "posix" or machine not in VARIANTS:
        raise NotCompiled(f"no compiled code for {sys.platform} on {machine}")
    command = compiler().command if command is None else command
    sources = sorted(str(path) for path in Path(SOURCES).glob("*.c"))
    libraries = []
    for variant in VARIANTS[machine]:
        path = folder / library_name(variant, sys.platform)
        # not in place: another process may have the old library mapped
        new = folder / f"{path.name}.{os.getpid()}"
        flags = [*FLAGS, f"-DRMQ_STAMP={stamp()}u", *FEATURES.get(variant, []), *(extra or [])]
        try:
            done = subprocess.run(
                [*command, *flags, "-o", str(new), *sources], capture_output=True, text=True, timeout=_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            raise NotCompiled(f"{command[0]}: {err}") from err
        if done.returncode != 0:
            new.unlink(missing_ok=True)
            raise NotCompiled(f"{shlex.join(command)} failed:\n{done.stderr}{done.stdout}")
        sys.stderr.write(done.stderr)
        new.replace(path)
        libraries.append(path)
    return libraries
