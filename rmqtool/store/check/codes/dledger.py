"""Codes of DLedger logs."""

from rmqtool.store.check.advice.steps import SALVAGE, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind

_FILL_UP = by_hand(
    "start the other members of its group, then this one with its dledger folder moved away: it is filled up by them. "
    "Without them, salvage keeps every intact message"
)

ALL = (
    kind(
        "dledger-entry",
        ERROR,
        "the entries of a DLedger log do not go on",
        "Each entry has a header of 48 bytes that says where it lies, its index, its term and its length. Here is no "
        "such header, or one that says something else, and entries follow behind it.",
        "A damaged disk, a file that was copied or edited, or a file of the log that is missing.",
        "A start reads the last three files and ends the log here if this is in them: what follows is cut off. The "
        "leader then sends it again.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-torn",
        WARNING,
        "the last entry of a DLedger log is not whole",
        "Behind the last whole entry lie bytes that are none.",
        "The broker was killed, or the machine stopped, while an entry was written.",
        "A start ends the log before it, and overwrites it. Nobody was told that this entry is stored.",
        by_hand("start the broker"),
    ),
    kind(
        "dledger-gap",
        ERROR,
        "entries are missing in a DLedger log",
        "The index of an entry is not one more than that of the entry before it.",
        "Files of two members were put together, or a part was overwritten.",
        "A start ends the log before the gap if it is in the last three files.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-term",
        ERROR,
        "terms go back in a DLedger log",
        "The term of an entry is lower than that of the entry before it.",
        "Files of two members were put together.",
        "A start ends the log before that entry if it is in the last three files.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-crc",
        ERROR,
        "an entry of a DLedger log has another checksum",
        "Brokers write 0 for the checksum of an entry's body. Here is another number, and it is not the checksum of "
        "the body.",
        "A damaged disk.",
        "The broker does not look at it; the message has a checksum of its own.",
        (*_FILL_UP, SALVAGE),
    ),
    kind(
        "dledger-index",
        WARNING,
        "the index of a DLedger log does not fit its entries",
        "Unit i of the index says where the entry with index i lies, its length and its term. Here it says something "
        "else, is not written, or leads nowhere.",
        "The broker was killed, or the machine stopped, before the index was written.",
        "A start writes it again from the first entry of the last three files on at which the two differ. In older "
        "files it finds entries where the index leads: followers that ask for these do not get them.",
        by_hand("start the broker; where older files are meant, let its group fill it up"),
    ),
    kind(
        "dledger-lost",
        ERROR,
        "acknowledged entries are missing in a DLedger log",
        "The committed index that the member has written down is higher than the index of its last entry.",
        "The end of the log was lost or cut after the member had written it.",
        "Started with its group it gets them from the others. Started alone it has lost them.",
        by_hand("start it together with the other members of its group"),
    ),
    kind(
        "dledger-uncommitted",
        INFO,
        "messages behind the committed index of a DLedger log",
        "The member does not know that a majority of its group has these. The index is written every three seconds, so "
        "after a kill the newest messages are often behind it.",
        "The broker was killed; or it was the leader, and could not reach the others any more.",
        "Started with its group, they stay if the member that becomes the leader has the same; else they are cut off "
        "and replaced by those of the leader. Started alone, they stay.",
        by_hand(
            "before you rely on them, compare the members: the one whose last entry has the greatest term, then the "
            "greatest index, has all that was acknowledged"
        ),
    ),
)
