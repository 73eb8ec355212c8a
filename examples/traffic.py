"""Messages and bytes by topic, straight from the log.

Usage: python traffic.py STORE
"""

import sys
from collections import Counter

from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.log.commit_log import CommitLog, Damage


def main(store: str) -> int:
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    damage = 0
    for item in CommitLog(StoreLayout(store)).walk():
        if isinstance(item, Damage):
            damage += 1
            print(f"damage at {item.physical_offset}: {item.reason}", file=sys.stderr)
            continue
        topic = item.record.topic.decode("utf-8", "replace")
        messages[topic] += 1
        size[topic] += item.record.total_size
    for topic, count in messages.most_common():
        print(f"{topic:30} {count:6} messages {size[topic]:9} bytes")
    return 1 if damage else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
