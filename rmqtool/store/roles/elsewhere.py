"""Messages of a store that are not in its directory; checked by every command and call that returns messages.

They may be only in the tier, in a log that is not there, or in a missing directory of the commit log.
"""

from collections.abc import Callable, Iterator

from formats.checkpoint import parse
from rmqtool.errors import CorruptFile, Refused
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign

Asked = Callable[[str, int], bool]


def need_readable_log(layout: StoreLayout) -> None:
    """Refuse to return messages if all of them are in a log that cannot be read.

    Raises:
        CorruptFile: there is such a DLedger log, for which an empty result would be wrong.
        UnreadableStore: a directory of the store cannot be listed.
    """
    reason = _why_unreadable(layout)
    if reason is not None and all(file.entries for file in layout.commit_log()):
        folder, _colon, text = reason.partition(": ")
        raise CorruptFile(folder, None, text)


def _why_unreadable(layout: StoreLayout) -> str | None:
    if not layout.dledger_dirs():
        return None
    from rmqtool.store.log.dledger import why_unreadable

    return why_unreadable(layout)


def log_elsewhere(layout: StoreLayout, what: str = "not shown") -> Iterator[str]:
    """Sentences about parts of the log that are not read, one line each; none for a plain store.

    Args:
        what: what is not done with the messages there.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if (reason := _why_unreadable(layout)) is not None:
        yield f"{reason}: messages are {what}"
    yield from log_missing(layout, what)


def log_missing(layout: StoreLayout, what: str) -> Iterator[str]:
    """Sentences about directories of the log that are not there, and about a log that must be in another directory.

    Args:
        what: what is not done with the messages there.
    """
    if (reason := layout.missing_log_folders()) is not None:
        yield f"{layout.root}: {reason}: messages in that directory are {what}"
    elif _has_lost_its_log(layout):
        yield (
            f"{layout.root}: it has had messages, and there is no commit log in it: they are {what}. If the log is in "
            "another directory (storePathCommitLog), give the broker's properties file"
        )


def need_log_of_checkpoint(layout: StoreLayout) -> None:
    """Refuse to begin a new log in a store that has had messages: the old one may be on a disk that is not mounted.

    Raises:
        Refused: the checkpoint knows of messages, and there is no file of the log.
    """
    if _has_lost_its_log(layout):
        raise missing_log(layout)


def missing_log(layout: StoreLayout, known: str = "", way: str = "") -> Refused:
    """The refusal of a store whose log is not there.

    Args:
        known: what else than the checkpoint points to messages, with its verb.
        way: what to do if the log is gone for good; by default what makes the checkpoint forget it.
    """
    rebuild = layout.command("rebuild", "checkpoint")
    return Refused(
        f"{layout.root}: there is no commit log in {', '.join(layout.commit_log_paths)}, although "
        f"{known or 'its checkpoint points'} to messages in it: is its disk mounted? If storePathCommitLog names "
        "another directory, give the broker's properties file (--broker-conf). "
        + (way or f"If the log is gone for good, {rebuild} lets a new one begin")
    )


def _has_lost_its_log(layout: StoreLayout) -> bool:
    return not layout.commit_log().files and parse(layout.checkpoint() or b"").physic_msg_timestamp > 0


def tier_elsewhere(
    layout: StoreLayout, asked: Asked | None = None, what: str = "not shown", *, reads: bool = False
) -> Iterator[str]:
    """A sentence with the number of messages that are only in the tier; nothing if there are none.

    Args:
        asked: whether a queue is part of the answer (topic, queue id); by default all are.
        what: what is not done with the messages.
        reads: whether they are read if the segments of the tier are local files.

    Raises:
        UnreadableStore: the tier cannot be read.
    """
    if tier_sign(layout) is None:
        return
    from rmqtool.store.layout.tier_signs import tiered_folder
    from rmqtool.store.tier.only_tiered import describe_left, describe_read, find_only_tiered

    left = [queue for queue in find_only_tiered(layout) if asked is None or asked(queue.topic, queue.queueId)]
    if left and reads and tiered_folder(layout) is not None:
        yield describe_read(left)
    elif (text := describe_left(left, what)) is not None:
        yield text


def messages_elsewhere(
    layout: StoreLayout, asked: Asked | None = None, what: str = "not shown", *, reads: bool = False
) -> Iterator[str]:
    """:func:`log_elsewhere` and :func:`tier_elsewhere`."""
    yield from log_elsewhere(layout, what)
    yield from tier_elsewhere(layout, asked, what, reads=reads)
