"""What tells a library from one that was compiled from other sources."""

import os
import zlib

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "c")


def stamp(folder: str = SOURCES) -> int:
    """A checksum of all C sources, by name and content; it is compiled into the library.

    Raises:
        OSError: they cannot be read.
    """
    checksum = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            with open(os.path.join(folder, name), "rb") as file:
                checksum = zlib.crc32(file.read(), zlib.crc32(name.encode(), checksum))
    return checksum


def library_name(variant: str, platform: str) -> str:
    """The file that has the code for one kind of processor.

    Args:
        platform: as ``sys.platform``.
    """
    return f"kernels-{variant}{'.dylib' if platform == 'darwin' else '.so'}"


# machine (os.uname): variants that are compiled for it, the one that every such processor runs first
VARIANTS: dict[str, tuple[str, ...]] = {
    "x86_64": ("x86-64", "x86-64-v3"),
    "aarch64": ("aarch64",),
    "arm64": ("aarch64",),
}
