"""Slowly write a commit log like a broker: ``python stream_writer.py STORE COUNT SEED``.

Messages are numbered. A record is written in pieces, and sometimes only partly before the process kills itself; the
next run continues after the last complete record, writing the message of that number with different bytes.
"""

import random
import sys
import time
from pathlib import Path

from formats.message.build import build_blank, fits
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, LocatedRecord
from tests.analytics.helpers import record

SIZE = 20_000  # of a file
KILLED = 9


def written(root: str) -> tuple[int, int]:
    """(number of the next message, its position)."""
    log = CommitLog(StoreLayout(root))
    located = [item for item in log.walk() if isinstance(item, LocatedRecord)]
    if not located:
        return 0, 0
    last = located[-1]
    return int(last.record.body.split()[1]) + 1, last.physical_offset + last.record.total_size


def write(root: str, count: int, seed: int) -> int:
    """Write messages up to a number; returns KILLED if it stopped inside one."""
    chance = random.Random(seed)
    number, at = written(root)
    while number < count:
        base = at // SIZE * SIZE
        path = Path(root) / "commitlog" / f"{base:020d}"
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        body = b"message %d %s" % (number, chance.randbytes(chance.randrange(400)))
        packed = record("Live", at - base, base=base, number=number, body=body)
        with path.open("r+b") as file:
            file.seek(at - base)
            if not fits(len(packed), SIZE - (at - base)):
                file.write(build_blank(SIZE - (at - base)))
                at = base + SIZE
                continue
            cuts = sorted(chance.sample(range(1, len(packed)), 2))
            for start, stop in zip([0, *cuts], [*cuts, len(packed)], strict=True):
                file.write(packed[start:stop])
                file.flush()
                if stop < len(packed):
                    time.sleep(0.002)
                    if chance.random() < 0.004:
                        return KILLED
        at += len(packed)
        number += 1
        time.sleep(chance.random() * 0.02)
    return 0


if __name__ == "__main__":
    sys.exit(write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
