"""Codes of files in general, and of the marks next to the data."""

from rmqtool.store.check.advice.advice import STOP_BROKER
from rmqtool.store.check.advice.steps import NOTHING, REBUILD_CHECKPOINT, REBUILD_FILES, RECOVER, SALVAGE, UNDO, by_hand
from rmqtool.store.check.codes.code import ERROR, INFO, WARNING, kind
from rmqtool.words import command_line

ALL = (
    kind(
        "file-unreadable",
        ERROR,
        "a file cannot be read",
        "The operating system refuses to open or map the file.",
        "Wrong owner or mode after a copy, a broken disk, or something that is not a regular file.",
        "The broker does not start, or fails when it first reads the file.",
        "give the file back to the broker's user, and check the disk",
    ),
    kind(
        "file-size",
        ERROR,
        "a file whose length differs from that of the others of its kind",
        "All commit-log files have the same length, and so do all consume-queue files and all index files.",
        "An incomplete copy, a full disk, a crash while the file was being created, or a changed file-size setting.",
        "A 4.9 broker refuses to load a commit log or queue with such a file. A 5.x broker deletes the file if it is "
        "empty and the last one. Both silently extend a short index file with zeros.",
        (REBUILD_FILES, *by_hand("copy any other file again from an intact copy")),
    ),
    kind(
        "file-gap",
        ERROR,
        "a file is missing between others",
        "File names are offsets, and each file begins where the one before it ends. Here at least one file is missing.",
        "Deleted by hand, or lost in a copy.",
        "The broker does not notice. Pulls from the gap are answered as if the messages had been removed, and continue "
        "in the next file. While it rebuilds queues, the broker may hang there.",
        (*by_hand("restore the missing file from a copy, if there is one"), SALVAGE),
    ),
    kind(
        "file-duplicate",
        ERROR,
        "two commit-log paths have a file of the same name",
        "With several commit-log paths, each file lies in exactly one of them.",
        "A path was added or moved while files were copied.",
        "The broker lists both, and which one it reads is a matter of chance.",
        "compare the two, keep the one that has messages, and move the other away",
    ),
    kind(
        "file-misnamed",
        ERROR,
        "a file name is not a multiple of the file size, or files overlap",
        "A file's name is the offset of its first byte: a multiple of the file size.",
        "The file was renamed, or created with a different file size.",
        "The broker looks for offsets in the wrong file.",
        "correct the file's name, or give the true file size with --broker-conf",
    ),
    kind(
        "file-foreign",
        ERROR,
        "something that does not belong in this directory",
        "A commit-log or queue directory holds only files whose names are numbers.",
        "Backup files of an editor, nohup.out, archives, or directories created by hand.",
        "The broker does not start, because it treats everything there as one of its own files.",
        (REBUILD_FILES,),
    ),
    kind(
        "store-role",
        INFO,
        "what this directory is in its cluster",
        "The directory belongs to a slave, to a member of a DLedger group, to a replica in controller mode or to a "
        "broker with tiered storage, or its commit log is spread over several directories.",
        "The broker's settings or the contents of the directory show it.",
        "The broker is not affected. Commands of rmqtool that write take it into account.",
        NOTHING,
    ),
    kind(
        "file-ignored",
        INFO,
        "something that brokers ignore",
        "No version of RocketMQ uses this name here.",
        "Someone, or another tool, put it there.",
        "The broker ignores it.",
        NOTHING,
    ),
    kind(
        "not-checked",
        INFO,
        "a part of the store that check does not read",
        "Some RocksDB databases, DLedger logs and the index of tiered storage are not verified.",
        "The store has such a part.",
        "The broker is not affected. This finding is only about check itself.",
        NOTHING,
    ),
    kind(
        "abort-present",
        WARNING,
        "the broker did not stop cleanly, or is still running",
        "A broker creates the file abort when it starts, and removes it when it stops cleanly.",
        "The broker was killed, it crashed or the power failed; or it is running now.",
        "At its next start the broker checks the log from the last checkpoint on, and rebuilds the queue entries from "
        "there and the newest part of the index.",
        RECOVER,
    ),
    kind(
        "store-in-use",
        INFO,
        "a process holds the store's lock",
        "The store may change while it is checked, so findings near its end may be wrong.",
        "A broker is running on this store.",
        "The broker is not affected.",
        STOP_BROKER,
    ),
    kind(
        "recovery-unfinished",
        WARNING,
        "a writing command of rmqtool was interrupted",
        "According to its record beside the store, a change was begun and not completed.",
        f"{command_line('recover')}, or another writing command, was killed.",
        "A broker that starts now finds a half-changed store.",
        RECOVER,
    ),
    kind(
        "undo-unfinished",
        WARNING,
        f"{command_line('undo')} was interrupted",
        f"The record of a change lies beside the store. {command_line('undo')} had begun to put it back.",
        f"{command_line('undo')} was killed.",
        "A broker that starts now finds a half-changed store.",
        UNDO,
    ),
    kind(
        "journal-unreadable",
        WARNING,
        "a record of changes beside the store cannot be used",
        "A manifest.json in STORE.rmqtool cannot be read, or belongs to another store. It is therefore unknown whether "
        "a change was interrupted, and writing commands refuse to run.",
        "A damaged disk, a store that was copied or renamed together with STORE.rmqtool, or a file created by hand.",
        "The broker is not affected: it does not read that directory.",
        "inspect the directory, and move it out of STORE.rmqtool if it belongs to another store",
    ),
    kind(
        "checkpoint-missing",
        WARNING,
        "there is no checkpoint",
        "The checkpoint holds the times up to which log, queues and index are safely on disk.",
        "The file was deleted, or lost in a copy.",
        "After an unclean stop the broker reads the whole log and rebuilds the whole index. This is slow, but nothing "
        "is missed.",
        REBUILD_CHECKPOINT,
    ),
    kind(
        "checkpoint-empty",
        WARNING,
        "the checkpoint holds no times, or is too short",
        "All times in it are zero although the log has messages, or the file is not 4096 bytes long. A broker that was "
        "stopped within seconds of its first message leaves such a file, too: then it is no finding, and after a kill "
        "in its first minute one without weight.",
        "The power failed while the file was first written, or it was filled with zeros to force a full check.",
        "The same as without a checkpoint: after an unclean stop the broker reads the whole log.",
        REBUILD_CHECKPOINT,
    ),
    kind(
        "checkpoint-ahead",
        WARNING,
        "the checkpoint is newer than the last message",
        "The times in a checkpoint are never later than the last stored message. Here they are.",
        "The tail of the log was lost or truncated, or the checkpoint comes from another copy of the store.",
        "After an unclean stop the broker starts its check too late, and older gaps in queues and index remain.",
        REBUILD_CHECKPOINT,
    ),
)
