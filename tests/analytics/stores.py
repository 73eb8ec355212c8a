"""A store of one day and fifty topics, with queues and index."""

from pathlib import Path

from formats.message.build import build_blank, fits
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.repair.rebuild import rebuild
from tests.analytics.helpers import TIME, record

DAY = 86_400_000
MESSAGES = 20_000
TOPICS = 50
CONF = BrokerConf(
    {
        "mappedFileSizeCommitLog": str(1 << 20),
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "5000",
        "maxIndexNum": "9000",
    }
)


def topic_of(number: int) -> str:
    """The topic of a message; the last of the fifty is rarer than the others."""
    return f"topic-{number % TOPICS:02d}"


def time_of(number: int) -> int:
    """Store time of a message: evenly distributed over the day."""
    return TIME + number * (DAY // MESSAGES)


def day_store(folder: Path, *, queues: bool = True, messages: int = MESSAGES, body: int = 180) -> StoreLayout:
    """Messages with a key ``k<number>`` and a unique id ``U<number>`` each, in files of 1 MiB.

    Args:
        messages: number of messages, from the start of the day.
        body: bytes of each body.
    """
    size = CONF.sizes["mappedFileSizeCommitLog"]
    offsets: dict[tuple[str, int], int] = {}
    files, data, base = [], bytearray(), 0
    for number in range(messages):
        topic, queue_id = topic_of(number), number // TOPICS % 2
        for _attempt in range(2):
            packed = record(
                topic, len(data), base=base, body=b"b" * (body + number % 7), queue_id=queue_id,
                queue_offset=offsets.get((topic, queue_id), 0), born_timestamp=time_of(number),
                store_timestamp=time_of(number),
                properties=b"KEYS\x01k%d\x02UNIQ_KEY\x01U%d\x02TAGS\x01t%d" % (number, number, number % 3),
            )  # fmt: skip
            if fits(len(packed), size - len(data)):
                break
            files.append(bytes(data) + build_blank(size - len(data)))
            data, base = bytearray(), base + size
        data += packed
        offsets[topic, queue_id] = offsets.get((topic, queue_id), 0) + 1
    files.append(bytes(data))
    directory = folder / "store" / "commitlog"
    directory.mkdir(parents=True)
    for number, content in enumerate(files):
        (directory / f"{number * size:020d}").write_bytes(content.ljust(size, b"\0"))
    layout = StoreLayout(str(folder / "store"), CONF)
    if queues:
        rebuild(layout, ("consumequeue", "index"))
    return StoreLayout(layout.root)
