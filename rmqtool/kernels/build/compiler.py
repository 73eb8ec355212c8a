"""Compiles the C sources into one shared object for each kind of processor.

Uses the compiler that ``$CC`` names, else ``cc``, ``gcc`` or ``clang``, else the one in the package ``ziglang``. No
headers of Python are needed, so a library serves every version of it.
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
# what x86-64-v3 means, in words that older compilers know too
FEATURES = {"x86-64-v3": ["-mavx2", "-mbmi", "-mbmi2", "-mfma", "-mlzcnt", "-mmovbe", "-mpopcnt"]}
_GLIBC = (2, 17)  # what zig compiles for: manylinux2014
_SECONDS = 600


class NotCompiled(Exception):
    """There is no compiler, or it refused."""


class Compiler(NamedTuple):
    """A command that compiles C, and what wheels that it makes may be called."""

    command: list[str]
    platform_tag: str


def own_compiler() -> list[str] | None:
    """The machine's own C compiler; None where there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in ([named] if named else []) + [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    return None


def compiler() -> Compiler:
    """The one that is used.

    Raises:
        NotCompiled: there is none.
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
    """Compile every variant for this machine into a folder; returns the libraries.

    Args:
        extra: further flags, as for sanitizers.
        command: the compiler, where it is not to be looked for.

    Raises:
        NotCompiled: there is no compiler, it refused, or the machine is not supported.
    """
    machine = platform.machine()
    if os.name != "posix" or machine not in VARIANTS:
        raise NotCompiled(f"no compiled code for {sys.platform} on {machine}")
    command = compiler().command if command is None else command
    sources = sorted(str(path) for path in Path(SOURCES).glob("*.c"))
    libraries = []
    for variant in VARIANTS[machine]:
        path = folder / library_name(variant, sys.platform)
        # not in place: a process may have the old one mapped
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
