"""Messages of a store that its directory does not hold: every command and call that answers with messages asks here.

They are in the tier alone, in a log that is not there, or in a folder of the commit log that is missing.
"""

from collections.abc import Callable, Iterator

from rmqtool.errors import CorruptFile
from rmqtool.store.layout.log_signs import missing_log_folders
from rmqtool.store.layout.paths import StoreLayout
from rmqtool.store.layout.tier_signs import tier_sign

Asked = Callable[[str, int], bool]


def need_readable_log(layout: StoreLayout) -> None:
    """Refuse to answer with messages where all of them are in a log that cannot be read.

    Raises:
        CorruptFile: there is such a DLedger log: an empty answer would be wrong.
        UnreadableStore: a directory of the store cannot be listed.
    """
    reason = _why_not_read(layout)
    if reason is not None and all(file.entries for file in layout.commit_log()):
        folder, _colon, why = reason.partition(": ")
        raise CorruptFile(folder, None, why)


def _why_not_read(layout: StoreLayout) -> str | None:
    if not layout.dledger_dirs():
        return None
    from rmqtool.store.log.dledger import why_not_read

    return why_not_read(layout)


def log_elsewhere(layout: StoreLayout, what: str = "not shown") -> Iterator[str]:
    """Which parts of the log are not read, for people, one line each; nothing for a plain store.

    Args:
        what: is not done with the messages there.

    Raises:
        UnreadableStore: a directory of the store cannot be listed.
    """
    if (reason := _why_not_read(layout)) is not None:
        yield f"{reason}: messages are {what}"
    if (reason := missing_log_folders(layout)) is not None:
        yield f"{layout.root}: {reason}: messages in that folder are {what}"


def tier_elsewhere(
    layout: StoreLayout, asked: Asked | None = None, what: str = "not shown", *, reads: bool = False
) -> Iterator[str]:
    """How many messages are in the tier alone, for people, in one line; nothing where there are none.

    Args:
        asked: whether the answer is of a queue (topic, queue id); all by default.
        what: is not done with the messages.
        reads: they are read where the segments of the tier are files of this machine.

    Raises:
        UnreadableStore: the tier cannot be read.
    """
    if tier_sign(layout) is None:
        return
    from rmqtool.store.layout.tier_signs import tiered_folder
    from rmqtool.store.tier.left_behind import left_behind, words_of, words_read

    left = [queue for queue in left_behind(layout) if asked is None or asked(queue.topic, queue.queueId)]
    if left and reads and tiered_folder(layout) is not None:
        yield words_read(left)
    elif (text := words_of(left, what)) is not None:
        yield text


def messages_elsewhere(
    layout: StoreLayout, asked: Asked | None = None, what: str = "not shown", *, reads: bool = False
) -> Iterator[str]:
    """:func:`log_elsewhere` and :func:`tier_elsewhere`."""
    yield from log_elsewhere(layout, what)
    yield from tier_elsewhere(layout, asked, what, reads=reads)
