"""Messages and bytes by topic, straight from the log.

Usage: python traffic.py STORE
"""

import sys
from collections import Counter

from rmqtool import Damage, Store


def main(path: str) -> int:
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    damage: list[Damage] = []
    for message in Store(path).messages(on_damage=damage.append):
        messages[message.topic] += 1
        size[message.topic] += message.record.total_size
    for topic, count in messages.most_common():
        print(f"{topic:30} {count:6} messages {size[topic]:9} bytes")
    for part in damage:
        print(f"damage at {part.physical_offset}: {part.reason}", file=sys.stderr)
    return 1 if damage else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
