"""The golden stores: directories written by RocketMQ, and the engine's answers for each.

``golden/stores/README.md`` describes the files of a case.
"""

import gzip
import json
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

STORES = Path(__file__).parent / "golden" / "stores"
STORES_OF_5 = STORES.with_name("stores-5.3.3")  # from complete 5.3.3 brokers
STORES_OF_5_5 = STORES.with_name("stores-5.5.0")  # from complete 5.5.0 brokers
PARTS_OF_5 = STORES.with_name("parts-5.3.3")  # small 5.3.3 stores, for parts missing from the others


def cases() -> list[str]:
    """Names of all cases, sorted."""
    return sorted(path.name for path in STORES.iterdir() if path.is_dir())


def cases_of_5() -> list[str]:
    """Names of the 5.3.3 stores, sorted."""
    return sorted(path.name for path in STORES_OF_5.iterdir() if path.is_dir())


def parts_of_5() -> list[str]:
    """Names of the small stores, sorted."""
    return sorted(path.name for path in PARTS_OF_5.iterdir() if path.is_dir())


def facts(part: str) -> dict[str, Any]:
    """What clients and the admin tool saw of a small store."""
    content: dict[str, Any] = json.loads((PARTS_OF_5 / part / "facts.json").read_text())
    return content


def has(case: str, name: str) -> bool:
    """Whether a case has a file of this name."""
    return (STORES / case / name).is_file()


def unpack(case: str, folder: Path) -> Path:
    """Unpack a case's store into ``folder`` with its modification times; returns the store directory."""
    with tarfile.open(_place(case) / case / "store.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "store"


def _place(case: str) -> Path:
    return next(place for place in (STORES_OF_5, STORES_OF_5_5, PARTS_OF_5, STORES) if (place / case).is_dir())


def about(case: str) -> dict[str, Any]:
    """Description of the case; ``config`` has the four file sizes it was written with."""
    return _json(case, "about.json")


def recovered(case: str) -> dict[str, Any]:
    """The engine's answer to a damaged or crashed store."""
    return _json(case, "recovered.json")


def messages(case: str) -> Iterator[dict[str, Any]]:
    """Every consume-queue entry in order, with its message."""
    with gzip.open(_place(case) / case / "messages.ndjson.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def queries(case: str) -> Iterator[dict[str, Any]]:
    """Key queries with the engine's physical offsets."""
    return _lines(case, "queries.ndjson")


def offsets_by_time(case: str) -> Iterator[dict[str, Any]]:
    """Queue offsets for store timestamps."""
    return _lines(case, "offset-by-time.ndjson")  # for 5.3.3, lower and upper bounds


def get_messages(case: str) -> Iterator[dict[str, Any]]:
    """Status, next offset and count of reads at an offset."""
    return _lines(case, "get-message.ndjson")


def files_after(case: str) -> list[tuple[int, str]]:
    """(size, name) of every file of the store after the engine opened it."""
    rows = (line.split(maxsplit=1) for line in (STORES / case / "files.txt").read_text().splitlines())
    return [(int(size), name) for size, name in rows]


def _json(case: str, name: str) -> dict[str, Any]:
    place = STORES_OF_5 if (STORES_OF_5 / case).is_dir() else STORES
    content: dict[str, Any] = json.loads((place / case / name).read_text())
    return content


def _lines(case: str, name: str) -> Iterator[dict[str, Any]]:
    place = STORES_OF_5 if (STORES_OF_5 / case).is_dir() else STORES
    with (place / case / name).open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def units(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The queue units that an engine has read, as ``consumequeue dump`` names their fields, in order."""
    named = {
        "cqTopic": "topic", "cqQueueId": "queueId", "cqOffset": "queueOffset", "cqPhysicalOffset": "physicalOffset",
        "cqSize": "size", "cqTagsCode": "tagsCode", "batchNum": "batchNum",
    }  # fmt: skip
    return sorted_units({name: message[theirs] for theirs, name in named.items()} for message in messages)


def sorted_units(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of ``consumequeue dump`` by topic, queue and queue offset."""
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))
