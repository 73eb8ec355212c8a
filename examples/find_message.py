"""Where is my message? In the log, in its queue, in the index, and which groups have consumed it.

Usage: python find_message.py STORE TOPIC KEY
"""

import sys

from formats.message.properties import UNIQ_KEY, parse
from rmqtool.cli.shell.times import iso_utc
from rmqtool.services.lookup.offsets import consumer_offsets
from rmqtool.services.lookup.query import Search, query_key
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.queues.reader import open_queue


def main(store: str, topic: str, key: str) -> int:
    layout = StoreLayout(store)
    indexed = {m.physical_offset for m in query_key(layout, topic, key, Search(), print)}
    found = query_key(layout, topic, key, Search(scan=True), print)
    if not found:
        print(f"never stored, or expired: no message of {topic} with key {key} in the log")
        return 1
    offsets = [row for row in consumer_offsets(layout) if row.topic == topic]
    for message in found:
        record = message.record
        print(f"{parse(record.properties).get(UNIQ_KEY)} stored {iso_utc(record.store_timestamp)}")
        print(f"  log    offset {message.physical_offset}, {record.total_size} bytes, CRC good")
        queue = open_queue(layout, topic, record.queue_id)
        entry = queue.entry(record.queue_offset) if queue and record.queue_offset < queue.max_offset else None
        listed = entry is not None and entry.physical_offset == message.physical_offset
        print(f"  queue  {record.queue_id} offset {record.queue_offset}: {'listed' if listed else 'MISSING'}")
        print(f"  index  {'listed' if message.physical_offset in indexed else 'MISSING'}")
        for row in offsets:
            if row.queueId == record.queue_id:
                state = "consumed" if row.consumerOffset > record.queue_offset else "not yet consumed"
                print(f"  group  {row.group}: {state} (at {row.consumerOffset} of {row.brokerOffset})")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]) if len(sys.argv) == 4 else __doc__)
