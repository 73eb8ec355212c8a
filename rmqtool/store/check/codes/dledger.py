"""Codes of DLedger logs."""

from rmqtool.store.check.advice.steps import REBUILD_MEMBER_QUEUES, SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

_FILL_UP = by_hand(
    "start the other members of its group, then this one with its dledger directory moved away: they bring it up to "
    "date. Without them, salvage keeps every intact message"
)

ALL = (
    kind(
        "dledger-entry",
        ERROR,
        "the chain of entries in a DLedger log is broken",
        "Each entry has a header of 48 bytes with its position, index, term and length. Here that header is missing or "
        "wrong, and more entries follow.",
        "A damaged disk, a file that was copied or edited, or a file of the log that is missing.",
        "At startup the broker reads the last three files. If the damage is in one of them, the log ends here and the "
        "rest is cut off; the leader then sends it again.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-torn",
        WARNING,
        "the last entry of a DLedger log is incomplete",
        "After the last complete entry there are bytes that are not an entry.",
        "The broker was killed, or the machine stopped, while an entry was written.",
        "At startup the broker ends the log before it, and overwrites it later. The entry was never acknowledged.",
        by_hand("start the broker"),
    ),
    kind(
        "dledger-gap",
        ERROR,
        "entries are missing in a DLedger log",
        "The index of an entry is not one more than that of the entry before it.",
        "Files of two members were mixed, or a part was overwritten.",
        "At startup the broker ends the log before the gap if it is in the last three files.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-term",
        ERROR,
        "terms decrease in a DLedger log",
        "The term of an entry is lower than that of the entry before it.",
        "Files of two members were mixed.",
        "At startup the broker ends the log before that entry if it is in the last three files.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-stale",
        INFO,
        "entries that the group has replaced lie behind the end of a DLedger log",
        "After the last entry there are entries of a lower term. A member that follows a new leader ends its log where "
        "both agree, leaves the bytes after that in the file, and overwrites them with the leader's entries.",
        "The broker was killed, or the machine stopped, before all of them had been overwritten.",
        "At startup it ends the log before them, and overwrites them later. Commands that read messages show them too.",
        by_hand("start the broker"),
    ),
    kind(
        "dledger-crc",
        ERROR,
        "an entry of a DLedger log has a wrong checksum",
        "Brokers write 0 as the checksum of an entry's body. This entry has a different number, which is not the "
        "checksum of its body.",
        "A damaged disk.",
        "The broker does not check it; the message has its own checksum.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-index",
        WARNING,
        "the index of a DLedger log does not match its entries",
        "Unit i of the index has the position, length and term of entry i. Here it has wrong values, is not written, "
        "or points nowhere.",
        "The broker was killed, or the machine stopped, before the index was written.",
        "At startup the broker rewrites it from the first difference in the last three files. In older files it relies "
        "on the index: followers that ask for these entries do not get them.",
        by_hand("start the broker; if older files are affected, let its group replace them"),
    ),
    kind(
        "dledger-lost",
        ERROR,
        "acknowledged entries are missing in a DLedger log",
        "The committed index that the member has recorded is higher than the index of its last entry.",
        "The end of the log was lost or truncated after it had been written.",
        "Started with its group, it gets them from the others. Started alone, it has lost them.",
        by_hand("start it together with the other members of its group"),
    ),
    kind(
        "dledger-uncommitted",
        INFO,
        "messages after the committed index of a DLedger log",
        "The member does not know whether a majority of its group has these. The index is written every three seconds, "
        "so after a kill the newest messages often lie after it.",
        "The broker was killed, or it was the leader and could no longer reach the others.",
        "If it is started with its group, they are kept if the new leader has the same ones; otherwise they are "
        "replaced by those of the leader. If it is started alone, they are kept.",
        by_hand(
            "before you rely on them, compare the members: the one whose last entry has the highest term, and among "
            "those the highest index, has everything that was acknowledged"
        ),
    ),
    kind(
        "dledger-refused",
        ERROR,
        "a member of a DLedger group whose broker does not start",
        "A start reads the last three files of the log. They must have the length of all files, follow each other, and "
        "end at most one file before the last one; the index must have the entry that is known to be committed.",
        "Files that were made and never written, or were lost, cut short or copied from another member.",
        "The broker does not start. rmqtool reads every intact entry all the same.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-queue-cut",
        WARNING,
        "the next start cuts queue entries of messages that the log has",
        "After a kill, a broker of 5.x adds up the sizes of the messages in the last file of a DLedger log without the "
        "headers of their entries, takes the result for the end of the log, and cuts queues that reach beyond it.",
        "The broker was killed, or the machine stopped, after these messages had been put into their queues.",
        "Consumers do not get these messages, though the log keeps them.",
        REBUILD_MEMBER_QUEUES,
    ),
)
