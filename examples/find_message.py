"""Where is my message? In the log, in its queue, in the index, and which groups have consumed it.

Usage: python find_message.py STORE TOPIC KEY
"""

import sys

from rmqtool import Store, consumer_lag


def main(path: str, topic: str, key: str) -> int:
    store = Store(path)
    indexed = {message.physical_offset for message in store.query_key(topic, key)}
    found = list(store.messages(topic=topic, key=key))
    if not found:
        print(f"never stored, or expired: no message of {topic} with key {key} in the log")
        return 1
    for message in found:
        print(f"{message.message_id} stored {message.stored_at.isoformat(timespec='milliseconds')}")
        print(f"  log    offset {message.physical_offset}, {message.record.total_size} bytes, CRC good")
        in_queue = store.queue_messages(topic, message.queue_id, message.queue_offset, message.queue_offset + 1)
        listed = any(one.physical_offset == message.physical_offset for one in in_queue)
        print(f"  queue  {message.queue_id} offset {message.queue_offset}: {'listed' if listed else 'MISSING'}")
        print(f"  index  {'listed' if message.physical_offset in indexed else 'MISSING'}")
        for row in consumer_lag(store, topic=topic):
            if row.queueId == message.queue_id:
                state = "consumed" if (row.consumerOffset or 0) > message.queue_offset else "not yet consumed"
                print(f"  group  {row.group}: {state} (at {row.consumerOffset} of {row.brokerOffset})")
    for warning in store.warnings:
        print(warning, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]) if len(sys.argv) == 4 else __doc__)
