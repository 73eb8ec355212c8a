"""The end of what is written in a file: also behind holes, and without reading what lies before it."""

import os
from pathlib import Path
from random import Random

import pytest

from rmqtool.store.disk.sparse import has_bytes

MIB = 1 << 20


@pytest.mark.parametrize("seed", range(20))
def test_the_last_byte_that_is_not_zero(seed: int, tmp_path: Path) -> None:
    rng, path = Random(seed), tmp_path / "file"
    size = rng.randrange(1, 5 * MIB)
    with path.open("wb") as file:
        file.truncate(size)
        for _ in range(rng.randrange(4)):
            file.seek(rng.randrange(size))
            file.write(rng.choice([b"\x01", bytes(5000), b"\x01" + bytes(MIB), rng.randbytes(9)])[: size - file.tell()])
    data = path.read_bytes()
    for start, stop in ((0, size), (rng.randrange(size), size), (0, rng.randrange(size)), (size, size)):
        assert has_bytes(str(path), start, stop) == start + len(data[start:stop].rstrip(b"\0"))


def test_of_a_full_file_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, pread = tmp_path / "file", 0, os.pread
    path.write_bytes(bytes(8 * MIB - 1) + b"\x01" + bytes(100))

    def counted(fd: int, size: int, at: int) -> bytes:
        nonlocal read
        read += size
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert has_bytes(str(path), 0, 8 * MIB + 100) == 8 * MIB
    assert read <= 2 * MIB
