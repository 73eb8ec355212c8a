"""Expected content of the golden case ``broker``, taken from its scenario, not from our output.

Its clients sent, per topic: Orders 400 + 10 + 5 + 5, Batched 20, Delayed 12 (+ 6 for two hours), Sequenced 30, Payments
18 half messages. See ``golden/stores/broker/scenario.md``.
"""

TRANSACTIONS = {
    f"tx-{i}": (
        "committed" if i % 3 == 0 or i in (2, 8, 14) else "given-up" if i == 5 else "rolled-back",
        0 if i % 3 != 2 else 3 if i == 5 else 1,  # checks
    )
    for i in range(18)
}

FAILED_THRICE = [i for i in range(400) if i % 40 == 0]
DEAD_AT_ONCE = [10, 60, 110, 210, 260, 310]
FIRST_LEVEL = {i: 1 if i % 80 == 0 else 3 for i in FAILED_THRICE}  # the second is 1, or 3 + 1

# level: messages through its queue. delay-i went to level 1 + i mod 4, each of the ten failed ones through two
SCHEDULED = {
    level: sum(1 + i % 4 == level for i in range(12))
    + sum(first == level for first in FIRST_LEVEL.values())
    + sum((1 if first == 1 else 4) == level for first in FIRST_LEVEL.values())
    for level in range(1, 5)
}
FAR = [f"far-{i}" for i in range(6)]
FAR_LEVEL, TWO_HOURS = 18, 7_200_000
STOPPED = 1_795_206_928_000  # after the last message, before any far one is due

MESSAGES = {
    "Orders": 420,
    "Batched": 20,
    "Delayed": 12,
    "Sequenced": 30,
    "Payments": 9,
    "%RETRY%lab-consumer": 20,
    "%DLQ%lab-consumer": 16,
    "SCHEDULE_TOPIC_XXXX": sum(SCHEDULED.values()) + 6,
    "RMQ_SYS_TRANS_HALF_TOPIC": 18 + sum(checks for _state, checks in TRANSACTIONS.values()),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": 17,
    "TRANS_CHECK_MAX_TIME_TOPIC": 1,
}
CONSUMED = {
    "lab-consumer": {"Orders", "Batched", "Delayed", "Payments", "%RETRY%lab-consumer"},
    "lab-orderly": {"Sequenced", "%RETRY%lab-orderly"},
    "CID_RMQ_SYS_TRANS": {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"},
}
