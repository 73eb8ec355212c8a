"""Produces and consumes with the client in C++ (its Python face): sends, tags, one message that is handled twice.

Its batches are left out: it says ``batch=1``, which no broker takes for ``true``, and all of one is one message.
"""

import collections
import os
import sys
import tempfile
import time

os.environ["HOME"] = tempfile.mkdtemp(prefix="cpp-client-")  # it writes its log there
from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

CONSUMED, LATER = 0, 1
names, count = sys.argv[1], int(sys.argv[2])


def message(body: str, tag: str) -> Message:
    made = Message("Spoken")
    made.set_keys(f"k{body}")
    made.set_tags(tag)
    made.set_body(body)
    return made


producer = Producer("producing", timeout=30_000)
producer.set_namesrv_addr(names)
producer.start()
for number in range(count):
    result = producer.send_sync(message(f"m{number}", "ab"[number % 2]))
    assert result.status == 0, result
print("sent", count, flush=True)

seen: collections.Counter[str] = collections.Counter()


def taken(_consumer: object, handle: object) -> int:
    got = RecvMessage(handle)
    seen[got.body.decode()] += 1
    return LATER if got.body == b"m0" and got.reconsume_times == 0 else CONSUMED


consumer = PushConsumer("consuming")
consumer.set_namesrv_addr(names)
consumer.subscribe("Spoken", lambda _message: None, "a")
consumer._unregister_callback()
consumer._register_callback(taken)
consumer.start()
for _ in range(600):
    if len(seen) == count // 2 and seen["m0"] >= 2:
        break
    time.sleep(0.1)
print("seen", len(seen), "m0", seen["m0"], flush=True)
consumer.shutdown()
producer.shutdown()
os._exit(0)  # its threads do not end by themselves
