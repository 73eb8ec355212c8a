"""Advice on a file that a broker refuses to load."""

import itertools
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from formats.config.files import NAMES
from formats.message.read import Record, read
from formats.queues.consume import FILLER_SIZE
from rmqtool.errors import Refused
from rmqtool.store.disk.remote import place_of
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import BATCH_QUEUES, DEFAULT_COMMIT_LOG, QUEUE_KINDS, StoreLayout
from rmqtool.words import command_line

FILES = ("rmqtool", "rebuild", "STORE", "files")

_FOLDERS = ("config", "consumequeue", BATCH_QUEUES, "consumequeue_ext", "index", "timerlog", "compaction")


class Remedy(NamedTuple):
    """One remedy.

    Attributes:
        does: what the command does, or what the user must do.
        command: words of a command line, in which STORE stands for the store; empty if the user must act.
    """

    does: str
    command: tuple[str, ...] = ()


SHORT_OR_STRANGE = Remedy(
    "fills a short last file of the log up with zeros, and moves out of the store what is empty or does not belong "
    "there; undo puts all of it back",
    FILES,
)


def remedy_command(remedy: Remedy, layout: StoreLayout) -> str:
    """The command line of a remedy for a given store."""
    words = [layout.root if word == "STORE" else word for word in remedy.command]
    return command_line(*words[1:], *layout.conf.options)


def remedy_for(path: str, size: int | None, wanted: int, *, last: bool, spare: bool = False) -> Remedy:
    """The remedy for one file of a directory whose files all have the same length.

    Args:
        size: bytes; None if the file does not belong there at all.
        wanted: bytes that the file should have.
        last: whether it is the last file of its directory.
        spare: whether no message follows the first ``wanted`` bytes.
    """
    if size is None and not can_go(path):
        what = "the directory " if os.path.isdir(path) else ""
        return Remedy(f"move {what}{path} out of the store: no broker loads a store in which it is")
    if size is None:
        return SHORT_OR_STRANGE
    if size < wanted and last:
        return SHORT_OR_STRANGE
    if size < wanted:
        return Remedy(
            f"gives {path} its length again, with an end-of-file blank behind its last message, so that later files "
            "stay; a whole copy of the file is better, because messages are missing in this one",
            FILES,
        )
    if spare:
        return Remedy(f"cuts {path} to {wanted} bytes, after which it holds no message", FILES)
    return Remedy(
        f"{path} is longer than the others: give the true file size with --broker-conf, or copy the file again"
    )


def is_in_the_way(path: str) -> bool:
    """Whether something else is where a directory of the store belongs, such as a link that leads nowhere."""
    return place_of(path) is None and os.path.lexists(path) and not os.path.isdir(path)


def find_in_the_way(layout: StoreLayout) -> dict[str, str]:
    """Path of everything in a store that is a file where a directory belongs, or the other way round → what to do."""
    if place_of(layout.root) is not None:
        return {}
    folders = [layout.path(name) for name in _FOLDERS]
    files = [layout.path(name) for name in ("checkpoint", "abort")]
    files += [layout.path("config", name + suffix) for name in NAMES for suffix in ("", ".tmp", ".bak")]
    advice = {
        path: f"move {path} out of the store: a directory belongs there" for path in folders if is_in_the_way(path)
    }
    return advice | {path: f"move {path} out of the store: a file belongs there" for path in files if _is_strange(path)}


def _is_strange(path: str) -> bool:
    """Whether something other than a file is at a path. A link counts as what it leads to, which may be nothing."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return os.path.lexists(path)  # a link that leads to itself


def find_shared_queues(layout: StoreLayout) -> dict[str, str]:
    """Links by which two queues have one directory, path of a queue or topic → path of a queue that has its files."""
    shared: dict[str, str] = {}
    if place_of(layout.root) is not None:
        return shared
    known: dict[tuple[int, int], str] = {}
    for kind in QUEUE_KINDS:
        for _topic, _queue_id, path in layout.queue_dirs(kind):
            with suppress(OSError):  # another process has just removed it
                about = os.stat(path)
                other = known.setdefault((about.st_dev, about.st_ino), path)
                for queue, kept in ((path, other), (other, path)) if other != path else ():
                    if (link := _link_to(queue)) is not None:
                        shared.setdefault(link, kept)
                        break
    return shared


def _link_to(queue: str) -> str | None:
    """The link that leads to a queue's directory, its own or that of its topic; None if there is none."""
    return next((path for path in (os.path.dirname(queue), queue) if os.path.islink(path)), None)


def describe_shared_queue(link: str, other: str) -> str:
    """Return what to do about one of :func:`find_shared_queues`."""
    return f"move the link {link} out of the store: by it two queues have the files of {other}"


def refuse_shared_queues(layout: StoreLayout) -> None:
    """Refuse a store in which two queues have one directory, since each would be written over the other.

    Raises:
        Refused: there are some.
    """
    if shared := find_shared_queues(layout):
        raise Refused("; ".join(itertools.starmap(describe_shared_queue, shared.items())))


def can_go(path: str) -> bool:
    """Whether a path is a file or link, which can be backed up; anything else must be moved by hand."""
    return os.path.isfile(path) or os.path.islink(path)


def cut_short(files: Sequence[Segment], conf: BrokerConf, known: int) -> bool:
    """Whether the only file of a log has been truncated.

    No other file shows the real length, but the queues may, or the file's name, which is a multiple of it.

    Args:
        known: end of the last message in any queue; the apparent end of a filler entry is ignored.
    """
    if len(files) != 1 or "mappedFileSizeCommitLog" in conf.sizes:
        return False
    (file,) = files
    return file.end < known != FILLER_SIZE or (0 < file.size != file.base % file.size > 0 and _is_named(file))


def _is_named(file: Segment) -> bool:
    """Whether the file's name is right: its first record states that offset."""
    first = read(file.view(), 0, file.size, crc=False)
    is_right = isinstance(first, Record) and first.physical_offset == file.base
    del first
    file.release()
    return is_right


def default_length(file: Segment, known: int) -> int | None:
    """The most likely original length of the truncated only file of a log: the broker's default, or the power of two
    that its name allows.
    """
    if file.base % DEFAULT_COMMIT_LOG == 0 and known <= file.base + DEFAULT_COMMIT_LOG:
        return DEFAULT_COMMIT_LOG
    length = 1 << (max(file.size, known - file.base, 1) - 1).bit_length()
    return length if file.base and file.base % length == 0 else None


def _length(length: int) -> str:
    return f"{length >> 30} GiB" if length % (1 << 30) == 0 else f"{length} bytes"


def remedy_for_only_file(file: Segment, known: int) -> Remedy:
    """The remedy for the only file of a log if it was :func:`cut short <cut_short>`."""
    wanted = default_length(file, known)
    if wanted is None:
        return Remedy(
            f"copy {file.path} again from a place where it is whole; or give its true length (mappedFileSizeCommitLog) "
            "with --broker-conf, and do what is said then"
        )
    return Remedy(
        f"fills the file up with zeros to {_length(wanted)}, as brokers have it unless mappedFileSizeCommitLog says "
        "otherwise (then give --broker-conf first); a whole copy of the file is better, because messages are missing "
        "in this one",
        FILES,
    )
