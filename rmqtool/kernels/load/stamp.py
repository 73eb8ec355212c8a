"""Checksum that detects a library compiled from other sources."""

import os
import zlib

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "c")


def stamp(folder: str = SOURCES) -> int:
    """Return a checksum over names and contents of all C sources; it is compiled into the library.

    Raises:
        OSError: a source cannot be read.
    """
    checksum = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            with open(os.path.join(folder, name), "rb") as file:
                checksum = zlib.crc32(file.read(), zlib.crc32(name.encode(), checksum))
    return checksum


def library_name(variant: str, platform: str) -> str:
    """Return the file name of the library for one processor variant.

    Args:
        platform: value of ``sys.platform``.
    """
    return f"kernels-{variant}{'.dylib' if platform == 'darwin' else '.so'}"


# machine (os.uname): variants compiled for it, beginning with the one that every such processor supports
VARIANTS: dict[str, tuple[str, ...]] = {
    "x86_64": ("x86-64", "x86-64-v3"),
    "aarch64": ("aarch64",),
    "arm64": ("aarch64",),
}
