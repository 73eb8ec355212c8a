"""Codes of the files of controller mode."""

from rmqtool.store.check.advice.steps import by_hand
from rmqtool.store.check.codes.code import ERROR, WARNING, kind

ALL = (
    kind(
        "epoch-broken",
        WARNING,
        "the file of master epochs cannot be read",
        "epochFileCheckpoint is not a list of epochs, or its checksum is wrong.",
        "A full disk, or a crash while the file was being written.",
        "The broker reads epochFileCheckpoint.bak. If that is bad too, it starts without epochs: as a replica it "
        "copies the log from the beginning.",
        by_hand("restore epochFileCheckpoint from its .bak or from another replica"),
    ),
    kind(
        "epoch-order",
        ERROR,
        "master epochs that do not increase",
        "Each line of epochFileCheckpoint has a higher epoch and a higher offset than the one before it.",
        "The file was edited by hand, or mixes lines of two brokers.",
        "The broker finds the wrong point at which its log diverges from the master's, and truncates its log there.",
        by_hand("stop the broker and restore epochFileCheckpoint from another replica"),
    ),
    kind(
        "epoch-ahead",
        WARNING,
        "a master epoch that begins after the end of the log",
        "epochFileCheckpoint has an epoch whose first offset the log does not reach.",
        "The end of the log was lost or truncated while the file was kept.",
        "If the broker becomes the master, it cannot record its own epoch, and replicas that compare epochs with it "
        "may copy a wrong part of the log.",
        by_hand("stop the broker and restore epochFileCheckpoint from another replica whose log has the same end"),
    ),
    kind(
        "epoch-inside",
        WARNING,
        "a master epoch that begins inside a record",
        "epochFileCheckpoint has an epoch whose first offset is not the beginning of a record in this log.",
        "The file or the log is another replica's: a new master begins its epoch at the end of its log.",
        "When the broker follows a master with this epoch, its log may be truncated in the middle of a message, or "
        "keep messages that the master does not have.",
        by_hand("stop the broker, compare it with the other replicas, and restore the file from one of them"),
    ),
    kind(
        "epoch-stale",
        ERROR,
        "messages that its group has truncated are part of the log again",
        "In its last epoch, the log first has messages of that epoch's master, and after them older ones of an earlier "
        "master. A 5.x broker that truncates its log leaves the bytes in the file, and overwrites them later.",
        "The broker was killed, or the machine stopped, after its log had been truncated and before the new master's "
        "messages had overwritten all of the old ones.",
        "Its next start reads on into them. If it becomes the master, consumers get them. When it follows a master of "
        "a newer epoch, they stay in place of the master's, and neither broker reports it. A master that comes back in "
        "the epoch that it had before begins this epoch at the end of its log, and its replica is truncated to where "
        "its own begins, without them.",
        by_hand("compare it with the other replicas, and truncate the log where these messages begin"),
    ),
    kind(
        "epoch-missing",
        WARNING,
        "another broker stored messages within a master epoch",
        "Each message has the address of the broker that stored it. Here it changes where epochFileCheckpoint has no "
        "beginning of an epoch.",
        "A line of the file is missing or wrong, the file is another replica's, or the broker's address has changed.",
        "When the broker follows its master, the point up to which both logs agree may be wrong: the log is truncated "
        "too early, or keeps messages that the master does not have.",
        by_hand("compare it with the other replicas, and restore epochFileCheckpoint from one whose log is the same"),
    ),
    kind(
        "identity-broken",
        ERROR,
        "brokerIdentity cannot be read",
        "The file should be one line, CLUSTER#BROKER#ID. It has a different form, or the ID is not a number.",
        "A crash while the file was being written, or the file was edited by hand.",
        "In controller mode the broker does not come online.",
        by_hand(
            "stop the broker and restore the line: the controller knows the ID (mqadmin getSyncStateSet); or move the "
            "file away, and the broker asks the controller for a new ID"
        ),
    ),
)
