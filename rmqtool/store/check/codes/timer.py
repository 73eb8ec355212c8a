"""Codes of the timer of 5.x: wheel, timer log, checkpoint, and what they lead to."""

from rmqtool.store.check.advice.steps import NOTHING, REBUILD_TIMER, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

ALL = (
    kind(
        "timer-wheel-size",
        ERROR,
        "the timer wheel has a wrong length",
        "The file timerwheel is always 38,707,200 bytes long: 1,209,600 slots of 32 bytes.",
        "A copy that was cut short, a full disk, or a file that is none.",
        "It does not start.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-wheel-missing",
        WARNING,
        "there is no timer wheel, although the timer log has units",
        "The wheel leads to the units of the timer log; only the end of the log can be found without it.",
        "The file was deleted, or lost in a copy.",
        "It makes a new wheel from the newest files of the timer log. What waits in older ones is never delivered.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-slot-outside",
        ERROR,
        "a slot of the timer wheel leads to no unit of the timer log",
        "The slot's newest position is behind the end of the timer log, before its beginning, or inside a unit.",
        "The timer log lost its tail or a file, while the wheel was flushed; or damage in the slot.",
        "It finds nothing when the slot fires, and the messages of the slot are not delivered. Where the timer log has "
        "grown over that position by then, it delivers messages of another slot at the wrong time, and twice.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-slot-misplaced",
        WARNING,
        "a slot of the timer wheel holds the time of another slot",
        "The number of a slot follows from its time (t / timerPrecisionMs modulo 1,209,600).",
        "Damage; or timerPrecisionMs was changed (give --broker-conf).",
        "It takes the slot for an empty one: what it leads to is not delivered.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-chain",
        ERROR,
        "the chain of a slot is broken",
        "Each unit of the timer log leads to the one before it in the same slot; here the link leads to no unit, to "
        "itself or forward.",
        "Damage in the timer log, or a file of it that is gone.",
        "It follows the chain up to here: messages before it in the slot are not delivered. A link that leads forward "
        "makes it run in a circle until memory ends.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-log-damage",
        ERROR,
        "bytes in the timer log that are no unit, with units behind them",
        "A unit is 52 bytes long, says so, and has a magic of at most four bits.",
        "A bad disk, a power cut that wrote pages out of order, or an overwritten file.",
        "Where its start reads (from one file before the flush position on) the timer log ends here, and all units "
        "behind are cut off: what they stand for is not delivered, unless the queue is read again.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-log-torn",
        WARNING,
        "the timer log ends inside a unit",
        "The last bytes of the timer log are a unit that was not written completely.",
        "The broker was killed or lost power while it wrote.",
        "Its start ends the timer log before them, and takes the message from the queue again.",
        by_hand("nothing needs to be done: the next start of a broker does it"),
    ),
    kind(
        "timer-no-message",
        ERROR,
        "a unit of the timer log leads to no message",
        "At the unit's physical offset there is no record: behind the end of the log, before it, or damage.",
        "The commit log was cut or lost its tail after the timer log was flushed; truncating does not touch the timer.",
        "It tries three times, and passes over it: the message is gone. Once the log has grown over that offset, it "
        "delivers whatever record lies there.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-other-message",
        ERROR,
        "a unit of the timer log leads to a record that is not its message",
        "The record at the unit's physical offset has another topic than rmq_sys_wheel_timer, or another size.",
        "The commit log was cut and has grown again since; or damage in the unit.",
        "It delivers what it reads there, or stops the timer where that has no real topic: nothing behind it is "
        "delivered then.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-expired",
        WARNING,
        "a waiting message is gone from the log",
        "The wheel leads to a message, or to a file of the timer log, that has expired.",
        "The disk was full, or fileReservedTime is shorter than messages wait.",
        "It passes over it: the message is gone.",
        NOTHING,
    ),
    kind(
        "timer-properties",
        ERROR,
        "a timer message has no usable deliver time, topic or queue",
        "TIMER_OUT_MS, REAL_TOPIC or REAL_QID is missing or no number.",
        "A torn write: no checksum covers properties.",
        "It tries this one message for ever, and delivers no timer message behind it (unless timerSkipUnknownError).",
        REBUILD_TIMER,
    ),
    kind(
        "timer-deliver-time",
        WARNING,
        "the slot of a timer message is not that of its deliver time",
        "The message says another time (TIMER_OUT_MS) than the slot or unit that leads to it.",
        "Damage in a unit, a slot or the message; or another timerPrecisionMs (give --broker-conf).",
        "It delivers when the slot fires.",
        NOTHING,
    ),
    kind(
        "timer-twice",
        WARNING,
        "a timer message waits twice",
        "Two units that are still to fire lead to the same message.",
        "After a crash the checkpoint was behind the timer log, and the queue was read again.",
        "It delivers the message twice.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-lost",
        ERROR,
        "a timer message that nothing leads to",
        "The checkpoint says that the queue was taken up to behind the message, its time is still to come, and neither "
        "the wheel nor a later message of the same unique key has it.",
        "Units were cut off from the timer log, or slots lost.",
        "It never delivers the message.",
        REBUILD_TIMER,
    ),
    kind(
        "timer-behind",
        INFO,
        "timer messages that the wheel does not have yet",
        "Messages of rmq_sys_wheel_timer behind the queue offset of config/timercheck.",
        "The broker stopped before it took them up.",
        "It takes them up after its next start.",
        NOTHING,
    ),
    kind(
        "timer-checkpoint-empty",
        ERROR,
        "config/timercheck is missing, too short or zero",
        "It says how far the wheel has turned, and up to where the timer's queue was taken.",
        "Deleted, lost in a copy, or a power cut while it was written.",
        "It takes every message of rmq_sys_wheel_timer that is still in the log again: those that were delivered are "
        "delivered once more.",
        (*by_hand("bring config/timercheck back from a copy, if there is one; else"), REBUILD_TIMER),
    ),
    kind(
        "timer-checkpoint-ahead",
        WARNING,
        "config/timercheck is ahead of the timer log or of its queue",
        "Its flush position lies behind the end of the timer log, or its queue offset behind the end of the queue.",
        "The tail of the timer log or of the queue was lost or cut, or the file comes from another copy of the store.",
        "It goes back to the end of the queue. In the timer log it begins its check too late: damage and slots of "
        "older files stay as they are.",
        REBUILD_TIMER,
    ),
)
