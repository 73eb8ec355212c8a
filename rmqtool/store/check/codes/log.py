"""Codes of the commit log."""

from rmqtool.store.check.advice.advice import LOG_BACK
from rmqtool.store.check.advice.steps import NOTHING, RECOVER, RECOVER_CUTTING, SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind
from rmqtool.words import command_line

CUT = (SALVAGE, RECOVER_CUTTING)

ALL = (
    kind(
        "log-absent",
        ERROR,
        "there are no messages, although queues or checkpoint refer to some",
        "Queues and index only point to messages in the commit log. Here the commit log is missing or empty.",
        "The files were deleted, they are in another directory (storePathCommitLog, --broker-conf), or a disk is not "
        "mounted.",
        "At its next start the broker deletes all queues, and begins a new log at offset 0.",
        LOG_BACK,
    ),
    kind(
        "log-crc",
        ERROR,
        "the checksum of a message's body is wrong",
        "All lengths are consistent, but the CRC-32 of the body is not the one that was stored with it.",
        "A bad disk or memory, or a page that never reached the disk.",
        "If the broker checks this part of the log at startup (the last three files, or after a crash everything since "
        "the checkpoint), the log ends here, and all later messages are cut off. Otherwise consumers get the damaged "
        "body.",
        CUT,
    ),
    kind(
        "log-damage",
        ERROR,
        "bytes in the log that are not a message, with messages after them",
        "The magic number, the size or a length of a record is wrong. The next intact record comes later.",
        "A bad disk, a power cut that left some pages unwritten, or a file that was overwritten.",
        "If the broker checks this part of the log at startup, the log ends here, and all later messages are cut off. "
        "Otherwise the broker skips the rest of this file when it builds queues.",
        CUT,
    ),
    kind(
        "log-torn",
        WARNING,
        "the log ends inside a message",
        "The last record of the log was not written completely.",
        "The broker was killed or the power failed during a write. The log of a slave may end like this at any time. A "
        "broker with writeWithoutMmap=true fills the page after each message with old bytes: they are not reported "
        "where earlier messages have them, or --broker-conf has that setting.",
        "The broker cuts off the incomplete record at its next start.",
        RECOVER,
    ),
    kind(
        "log-blank-missing",
        ERROR,
        "a full file of the log does not end with an end-of-file mark",
        "When the next message does not fit into a file, the rest of the file begins with an end-of-file mark. Here "
        "it is zero, although files with messages follow.",
        "A page that never reached the disk, or a file that was extended by hand.",
        "If the broker checks this part of the log at startup, the log ends here, and all later files are deleted.",
        CUT,
    ),
    kind(
        "log-blank-size",
        INFO,
        "an end-of-file mark with a wrong size",
        "The size in the mark should be the number of bytes that are left in the file.",
        "The file size was changed, or the mark is damaged.",
        "A 4.9 broker ignores the size. A 5.x broker treats a size that is too large as damage, from 5.5.1 on also a "
        "negative one: if it checks this part of the log at startup, the log ends here, and all later files are "
        "deleted. In a 5.x store, this finding is therefore an error, and in one of 5.5 a negative size is a warning, "
        "which --engine 5.5.1 makes an error.",
        NOTHING,
    ),
    kind(
        "log-stale",
        WARNING,
        "bytes after the end of the log",
        "After the last message the file is not zero, and what is there is not the next message.",
        "The log was truncated without filling the rest with zeros, or the power failed while pages were written.",
        "When new messages are appended, old bytes after them may look like the next record. After a crash, the "
        "broker's start then brings old messages back.",
        RECOVER,
    ),
    kind(
        "log-position",
        ERROR,
        "a record that states a position other than its own",
        "Every record states its own physical offset. Here that offset differs from where the record is.",
        "A file was renamed, swapped or copied from another broker; or the record is damaged.",
        "The broker does not check this. The queue and index entries that it builds from the record point to the "
        "position that the record states.",
        (*by_hand("correct the file's name, if it was renamed"), SALVAGE),
    ),
    kind(
        "log-properties",
        WARNING,
        "the properties of a message cannot be parsed",
        "An item has no name or no separator, there are zero bytes at the end, or the text is not UTF-8.",
        "An incomplete write (no checksum covers properties), or a client in another language.",
        "The broker skips what it does not understand. Keys, tags or a delay level may be missing.",
        f"{command_line('commitlog', 'hexdump', 'STORE', '--offset')} shows the bytes; they cannot be repaired",
    ),
    kind(
        "log-port",
        ERROR,
        "a message with an impossible port",
        "A record has the addresses of its producer and of its broker, each with a port from 0 to 65535. Here one is "
        "out of that range.",
        "A bad disk or memory (no checksum covers these fields), or a record that another program wrote.",
        "The broker ignores it. Java consumers can read neither the message nor those after it in the same pull, and "
        "continue after them without an error.",
        SALVAGE,
    ),
    kind(
        "log-body",
        WARNING,
        "a compressed body cannot be decompressed",
        "The checksum is right, but the compressed data is cut short or of an unknown kind.",
        "The producer sent it like this.",
        "The broker does not read bodies. Consumers fail to read the message.",
        "skip the message at the consumer",
    ),
    kind(
        "log-batch-numbers",
        ERROR,
        "a message whose properties stop 5.x brokers",
        "INNER_BASE and INNER_NUM describe a batch that is stored as one record. Both are present, and one of them is "
        "not a number.",
        "The producer sent it like this: a broker accepts any properties.",
        "If the broker checks this part of the log at startup, the log ends here, and all later messages are cut off. "
        "Otherwise the broker skips the rest of this file when it builds queues. This is reported for 5.x stores only, "
        "because 4.9 ignores these properties.",
        CUT,
    ),
    kind(
        "log-prepared",
        WARNING,
        "a committed transaction message has no half message",
        "The prepared offset of a committed message should point to its half message in RMQ_SYS_TRANS_HALF_TOPIC.",
        "Damage, or a store that was assembled from several stores.",
        "The broker is not affected: the committed message itself is complete.",
        NOTHING,
    ),
    kind(
        "log-time-backwards",
        INFO,
        "store times go back",
        "A record has an earlier store time than the record before it.",
        "The machine's clock was set back; or old messages came back after the log was cut (see log-stale).",
        "A search by time may give a queue offset that is slightly wrong.",
        NOTHING,
    ),
    kind(
        "log-ordinal-gap",
        WARNING,
        "the queue offsets of a queue skip numbers",
        "The messages of a queue are numbered without gaps. Here numbers are missing, although there is no damage in "
        "between.",
        "Queue entries were lost and new messages were numbered from a wrong offset, or the log was assembled from "
        "parts.",
        "The broker does not notice. If the queue is rebuilt, entries get offsets that differ from those in their "
        "messages.",
        "there is no repair that keeps all messages; consumers see no gap as long as the queue files are kept",
    ),
    kind(
        "log-ordinal-repeat",
        WARNING,
        "a queue offset is used twice",
        "Two messages of one queue state the same queue offset.",
        "The queue's files were lost and numbering restarted, or the broker was started on a truncated log.",
        "Only one of the two messages can be in the queue at its own offset.",
        f"there is no repair that keeps both at their offsets; {command_line('commitlog', 'dump', 'STORE')} shows both",
    ),
    kind(
        "log-topic",
        WARNING,
        "a topic whose name cannot be a directory",
        "The topic of a record cannot be the name of a directory, so the topic has no queue.",
        "The topic is damaged, or a client sent a name that was never validated.",
        "The broker cannot create the queue.",
        f"{command_line('commitlog', 'dump', 'STORE')} still shows the messages",
    ),
)
