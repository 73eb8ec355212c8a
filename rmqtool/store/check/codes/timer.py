"""Codes of the 5.x timer: wheel, timer log, checkpoint, and the messages they refer to."""

from rmqtool.store.check.advice.steps import NOTHING, REBUILD_TIMER, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

ALL = (
    kind(
        "timer-wheel-size",
        ERROR,
        "the timer wheel has a wrong length",
        "The file timerwheel is always 38,707,200 bytes long: 1,209,600 slots of 32 bytes.",
        "An incomplete copy, a full disk, or a file that is not a timer wheel.",
        "The broker does not start.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-wheel-missing",
        WARNING,
        "there is no timer wheel, although the timer log has units",
        "The slots of the wheel lead to the units of the timer log. Without it, only the end of the timer log can be "
        "found.",
        "The file was deleted, or lost in a copy.",
        "The broker builds a new wheel from the newest files of the timer log. Messages waiting in older files are "
        "never delivered.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-slot-outside",
        ERROR,
        "a slot of the timer wheel that leads to no unit of the timer log",
        "The newest position in the slot is after the end of the timer log, before its beginning, or inside a unit.",
        "The timer log lost its end or a file after the wheel was flushed; or the slot is damaged.",
        "When the slot is due, the broker finds nothing, and does not deliver the slot's messages. If the timer log "
        "has grown past that position by then, it delivers messages of another slot at the wrong time, and later once "
        "more.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-slot-misplaced",
        WARNING,
        "a slot of the timer wheel with the time of another slot",
        "The number of a slot is calculated from its time (t / timerPrecisionMs modulo 1,209,600).",
        "Damage, or timerPrecisionMs was changed (give --broker-conf).",
        "The broker treats the slot as empty, and does not deliver its messages.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-chain",
        ERROR,
        "the chain of units of a slot is broken",
        "Each unit of the timer log leads to the unit before it in the same slot. Here the link leads to no unit, to "
        "the unit itself, or forward.",
        "Damage in the timer log, or a file of it is missing.",
        "The broker follows the chain up to here, and does not deliver the messages of earlier units. A link that "
        "leads forward makes it loop until memory runs out.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-log-damage",
        ERROR,
        "bytes in the timer log that are not a unit, with units after them",
        "A unit is 52 bytes long, states this size, and has a magic number of at most four bits.",
        "A bad disk, a power cut that left some pages unwritten, or a file that was overwritten.",
        "If the broker reads this part at startup (it reads from one file before the flush position), the timer log "
        "ends here, and all later units are cut off. Their messages are not delivered, unless the timer's queue is "
        "read again.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-log-torn",
        WARNING,
        "the timer log ends inside a unit",
        "The last unit of the timer log was not written completely.",
        "The broker was killed or the power failed during a write.",
        "At startup the broker cuts off the incomplete unit, and reads its message from the timer's queue again.",
        by_hand("nothing to do: the broker does it at its next start"),
    ),
    kind(
        "timer-no-message",
        ERROR,
        "a unit of the timer log that points to no message",
        "There is no record at the unit's physical offset: it is after the end of the log, before its beginning, or in "
        "damaged bytes.",
        "The commit log was truncated, or lost its end, after the timer log was flushed. The timer log is not "
        "truncated with it.",
        "The broker tries three times and then skips the unit: the message is lost. Once the log has grown past that "
        "offset, the broker delivers whatever record is there.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-other-message",
        ERROR,
        "a unit of the timer log that points to a record other than its message",
        "The record at the unit's physical offset has a topic other than rmq_sys_wheel_timer, or a different size.",
        "The commit log was truncated and has grown again since, or the unit is damaged.",
        "The broker delivers the record that it reads there. If that record has no real topic, the timer stops there, "
        "and no later message is delivered.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-expired",
        WARNING,
        "a waiting message that has expired",
        "The wheel leads to a message, or to a file of the timer log, that has expired and was removed.",
        "The disk was full, or fileReservedTime is shorter than the time that messages wait.",
        "The broker skips it: the message is lost.",
        NOTHING,
    ),
    kind(
        "timer-properties",
        ERROR,
        "a timer message without a usable deliver time, topic or queue",
        "TIMER_OUT_MS, REAL_TOPIC or REAL_QID is missing or not a number.",
        "An incomplete write: no checksum covers properties.",
        "The broker retries this message forever, and delivers no timer message after it (unless timerSkipUnknownError "
        "is set).",
        REBUILD_TIMER,
    ),
    kind(
        "timer-deliver-time",
        WARNING,
        "a timer message in the slot of a different deliver time",
        "The time in the message (TIMER_OUT_MS) differs from that of the slot or unit that leads to it.",
        "A unit, a slot or the message is damaged; or timerPrecisionMs was different (give --broker-conf).",
        "The broker delivers the message at the time of the slot.",
        NOTHING,
    ),
    kind(
        "timer-twice",
        WARNING,
        "a timer message that waits twice",
        "Two units that are not due yet lead to the same message.",
        "After a crash the checkpoint was older than the timer log, and the timer's queue was read again.",
        "The broker delivers the message twice.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-lost",
        ERROR,
        "a timer message that no unit leads to",
        "According to the checkpoint, the broker has taken this message from the timer's queue. It is not due yet, and "
        "neither the wheel nor a later message with the same unique key leads to it.",
        "Units were cut off the timer log, or slots were lost.",
        "The broker never delivers the message.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-behind",
        INFO,
        "timer messages that are not in the wheel yet",
        "These messages of rmq_sys_wheel_timer come after the queue offset in config/timercheck.",
        "The broker stopped before it read them.",
        "The broker reads them after its next start.",
        NOTHING,
    ),
    kind(
        "timer-checkpoint-empty",
        ERROR,
        "config/timercheck is missing, too short or zero",
        "The file states how far the wheel has turned, and how far the timer's queue was read.",
        "The file was deleted or lost in a copy, or the power failed while it was being written.",
        "The broker rereads every message of rmq_sys_wheel_timer that is still in the log. Messages that were already "
        "delivered are delivered once more.",
        (*by_hand("restore config/timercheck from a copy, if there is one"), REBUILD_TIMER),
    ),
    kind(
        "timer-checkpoint-ahead",
        WARNING,
        "config/timercheck is ahead of the timer log or of its queue",
        "Its flush position is beyond the end of the timer log, or its queue offset beyond the end of the timer's "
        "queue.",
        "The timer log or the queue lost its end, or the file is from another copy of the store.",
        "The broker goes back to the end of the queue. In the timer log it starts its check too late, and damage in "
        "older files remains.",
        REBUILD_TIMER,
    ),
)
