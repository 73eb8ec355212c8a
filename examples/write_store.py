"""Make a store, append to it, read it back, all in one process.

Usage: python write_store.py NEWSTORE
"""

import sys

from rmqtool import NewMessage, Store


def main(path: str) -> int:
    with Store.create(path) as store:
        one = store.append(NewMessage(topic="Orders", body=b"first", tags="created", keys="order-1"))
        print(f"{one.status}: offset {one.physical_offset}, queue offset {one.queue_offset}, id {one.message_id}")
        delayed = store.append(NewMessage(topic="Orders", body=b"in 10 s", properties={"DELAY": "3"}))
        print(f"a delayed message waits in {delayed.topic} queue {delayed.queue_id}")
        many = store.append_many(
            [NewMessage(topic="Orders", queue_id=n % 4, keys=f"order-{n}") for n in range(2, 1002)]
        )
        print(f"{sum(result.ok for result in many)} more; the last one at {many[-1].physical_offset}")
        refused = store.append(NewMessage(topic="字" * 43))
        print(f"{refused.status}: {refused.reason}")
    with Store(path) as store:  # reading: no lock, nothing written
        (found,) = store.query_key("Orders", "order-77")
        print(f"order-77 lies at {found.physical_offset} in queue {found.queue_id}: {found.text!r}")
        print(", ".join(f"{q.topic}/{q.queueId}: {q.minOffset} to {q.maxOffset}" for q in store.queues()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
