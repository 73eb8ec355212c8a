"""Codes of the commit log."""

from rmqtool.store.check.advice.advice import LOG_BACK
from rmqtool.store.check.advice.steps import NOTHING, RECOVER, RECOVER_CUTTING, SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

CUT = (SALVAGE, RECOVER_CUTTING)

ALL = (
    kind(
        "log-absent",
        ERROR,
        "there are no messages, though queues or checkpoint know of some",
        "The commit log holds the messages, and there is none, or it is empty; queues and index only point into it.",
        "The files were deleted, lie at another path (storePathCommitLog, --broker-conf), or a disk is not mounted.",
        "It deletes all queues at its next start, and begins a new log at offset 0.",
        LOG_BACK,
    ),
    kind(
        "log-crc",
        ERROR,
        "a message's body does not have its checksum",
        "All lengths agree, but the body's CRC-32 is not the one that was stored with it.",
        "A bad disk or memory, or a page that never reached the disk.",
        "Where recovery meets it (the last three files; after a crash everything since the checkpoint) the log ends "
        "here and all later messages are cut off. Elsewhere consumers get the damaged body.",
        CUT,
    ),
    kind(
        "log-damage",
        ERROR,
        "bytes in the log that are no message, with messages behind them",
        "Magic, size or lengths of a record are wrong; the next intact record lies further on.",
        "A bad disk, a power cut that wrote pages out of order, or an overwritten file.",
        "Where recovery meets it the log ends here and all later messages are cut off. Elsewhere dispatch skips to the "
        "end of the file.",
        CUT,
    ),
    kind(
        "log-torn",
        WARNING,
        "the log ends inside a message",
        "The last bytes of the log are a record that was not written completely.",
        "The broker was killed or lost power while it wrote; a slave may end so at any time.",
        "The next start cuts the log before it.",
        RECOVER,
    ),
    kind(
        "log-blank-missing",
        ERROR,
        "a full file of the log does not end in a blank",
        "The rest of a file into which the next message did not fit begins with an end-of-file mark; here it is zero "
        "although files with messages follow.",
        "A page that never reached the disk, or a file that was padded by hand.",
        "Recovery that meets it ends the log here and deletes all later files.",
        CUT,
    ),
    kind(
        "log-blank-size",
        INFO,
        "an end-of-file mark says another size than is left",
        "The mark's size field is the number of bytes to the end of the file.",
        "A file size that was changed, or damage.",
        "4.9 does not look at it. 5.x takes it for damage where it is larger than what is left: recovery that meets it "
        "ends the log here and deletes all later files, which makes it an error in a store of 5.x.",
        NOTHING,
    ),
    kind(
        "log-stale",
        WARNING,
        "bytes behind the end of the log",
        "Behind the last message the file is not zero, yet holds no message of its own position.",
        "The log was cut without zeroing what was cut, or pages were written out of order.",
        "Messages that are appended later may end where old bytes look like a record; a start after a crash then "
        "brings old messages back.",
        RECOVER,
    ),
    kind(
        "log-position",
        ERROR,
        "a record says another position than it has",
        "Every record holds its own physical offset.",
        "A file that was renamed, swapped or copied from another broker; or damage.",
        "It does not check. Whatever is dispatched from here on points to the position that the record says.",
        (*by_hand("give the file its true name where it was renamed; else"), SALVAGE),
    ),
    kind(
        "log-properties",
        WARNING,
        "a message's properties do not parse",
        "An item without a name or separator, zero bytes at the end, or text that is no UTF-8.",
        "A torn write (no checksum covers properties), or a client of another language.",
        "It passes over what it does not understand: keys, tags or a delay level may be gone.",
        "rmqtool commitlog hexdump STORE --offset shows the bytes; they cannot be mended",
    ),
    kind(
        "log-body",
        WARNING,
        "a compressed body does not decompress",
        "The checksum is right, but the stream is cut or of an unknown kind.",
        "The producer sent it so.",
        "It does not look at bodies; consumers fail to read the message.",
        "skip the message at the consumer",
    ),
    kind(
        "log-batch-numbers",
        ERROR,
        "a message stops brokers of 5.x by what its properties say",
        "INNER_BASE and INNER_NUM, which say what an inner batch holds, are both there, and one is no number.",
        "The producer sent it so: a broker takes any properties.",
        "Where recovery meets it the log ends here and all later messages are cut off; dispatch skips to the end of "
        "the file. Told for stores of 5.x only: 4.9 does not look at these properties.",
        CUT,
    ),
    kind(
        "log-prepared",
        WARNING,
        "a committed transaction names no half message",
        "The prepared offset of a committed message leads to its half message in RMQ_SYS_TRANS_HALF_TOPIC.",
        "Damage, or a store that was put together from several.",
        "Nothing: the committed message itself is whole.",
        NOTHING,
    ),
    kind(
        "log-time-backwards",
        INFO,
        "store times go back",
        "A record is older than the one before it.",
        "The machine's clock was set back; or old messages came back after a cut (see log-stale).",
        "Search by time may answer a little wrong.",
        NOTHING,
    ),
    kind(
        "log-ordinal-gap",
        WARNING,
        "queue offsets of a queue skip numbers",
        "Messages of one queue are numbered without gaps; here some are missing although no damage lies between.",
        "Entries of the queue were lost and its numbering went on from a wrong place, or a log was put together.",
        "It does not notice; entries built anew would stand at other offsets than the messages say.",
        "nothing that keeps all messages; consumers see no gap as long as the queue files are kept",
    ),
    kind(
        "log-ordinal-repeat",
        WARNING,
        "queue offsets of a queue come twice",
        "Two messages of one queue say the same queue offset.",
        "The queue's files were lost, and numbering began again; the broker was started on a cut log.",
        "Only one of the two can be in the queue under its own offset.",
        "nothing that keeps both under their offsets; rmqtool commitlog dump STORE shows both",
    ),
    kind(
        "log-topic",
        WARNING,
        "a topic that no directory can be named after",
        "The topic of a record is no possible name for a directory, so it has no queue.",
        "Damage in the topic, or a client that was not checked.",
        "It cannot make the queue.",
        "rmqtool commitlog dump STORE still shows the messages",
    ),
)
