"""What a person does about a file that a broker refuses to load."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from formats.message.read import Record, read
from formats.queues.consume import FILLER_SIZE
from rmqtool.store.disk.segments import Segment
from rmqtool.store.layout.broker_conf import BrokerConf
from rmqtool.store.layout.paths import DEFAULT_COMMIT_LOG, StoreLayout
from rmqtool.words import command_line

FILES = ("rmqtool", "rebuild", "STORE", "files")


class WayOn(NamedTuple):
    """One thing to do.

    Attributes:
        does: what it does, or what the person does.
        command: words of a command line, in which STORE stands for the store; empty where a person must act.
    """

    does: str
    command: tuple[str, ...] = ()


SHORT_OR_STRANGE = WayOn(
    "fills a short last file of the log up with zeros, and moves out of the store what is empty or does not belong "
    "there; undo puts all of it back",
    FILES,
)


def command_of(way: WayOn, layout: StoreLayout) -> str:
    """The command of a way, as a person types it for a store."""
    command = [layout.root if word == "STORE" else word for word in way.command]
    return command_line(*command[1:], *layout.conf.options)


def way_on(path: str, size: int | None, wanted: int, *, last: bool) -> WayOn:
    """What to do about one file of a directory in which all have one length.

    Args:
        size: bytes; None where the file does not belong there at all.
        wanted: bytes that a file should have.
        last: it is the last of its directory.
    """
    if size is None and os.path.isdir(path) and not os.path.islink(path):
        return WayOn(f"move the directory {path} out of the store: no broker loads a store in which it is")
    if size is None:
        return SHORT_OR_STRANGE
    if size < wanted and last:
        return SHORT_OR_STRANGE
    if size < wanted:
        return WayOn(
            f"gives {path} its length again, with an end-of-file blank behind its last message, so that later files "
            "stay; a whole copy of the file is better, because messages are missing in this one",
            FILES,
        )
    return WayOn(
        f"{path} is longer than the others: give the true file size with --broker-conf, or copy the file again"
    )


def cut_short(files: Sequence[Segment], conf: BrokerConf, known: int) -> bool:
    """Whether the only file of a log is shorter than it was: no other file tells the true length, but queues do, or
    its name, which is a multiple of it.

    Args:
        known: end of the last message that any queue knows; the end that a filler entry seems to have means nothing.
    """
    if len(files) != 1 or "mappedFileSizeCommitLog" in conf.sizes:
        return False
    (file,) = files
    return file.end < known != FILLER_SIZE or (0 < file.size != file.base % file.size > 0 and _is_named(file))


def _is_named(file: Segment) -> bool:
    """Whether the name is right: the first record says that it lies there."""
    first = read(file.view(), 0, file.size, crc=False)
    named = isinstance(first, Record) and first.physical_offset == file.base
    del first
    file.release()
    return named


def default_length(file: Segment, known: int) -> int | None:
    """The length that the only file of a log, cut short, is most likely to have had: that of brokers by default, or
    the power of two that its name allows.
    """
    if file.base % DEFAULT_COMMIT_LOG == 0 and known <= file.base + DEFAULT_COMMIT_LOG:
        return DEFAULT_COMMIT_LOG
    length = 1 << (max(file.size, known - file.base, 1) - 1).bit_length()
    return length if file.base and file.base % length == 0 else None


def _length(length: int) -> str:
    return f"{length >> 30} GiB" if length % (1 << 30) == 0 else f"{length} bytes"


def way_on_alone(file: Segment, known: int) -> WayOn:
    """What to do about the only file of a log, which was :func:`cut short <cut_short>`."""
    wanted = default_length(file, known)
    if wanted is None:
        return WayOn(
            f"copy {file.path} again from a place where it is whole; or give its true length (mappedFileSizeCommitLog) "
            "with --broker-conf, and do what is said then"
        )
    return WayOn(
        f"fills the file up with zeros to {_length(wanted)}, as brokers have it unless mappedFileSizeCommitLog says "
        "otherwise (then give --broker-conf first); a whole copy of the file is better, because messages are missing "
        "in this one",
        FILES,
    )
