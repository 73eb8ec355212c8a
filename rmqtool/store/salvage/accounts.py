"""Accounts and access lists of the auth module: databases without messages, which are copied as they are."""

import os

from formats.config.rocksdb import ACCOUNTS
from rmqtool.errors import CorruptFile, MissingRuntime, UnreadableStore
from rmqtool.store.config.files import read_accounts
from rmqtool.store.disk.files import make_file
from rmqtool.store.disk.mapping import read_at
from rmqtool.store.disk.ownership import make_folders
from rmqtool.store.layout.paths import StoreLayout

_PIECE = 1 << 20


def copy_accounts(layout: StoreLayout, target: str, left_out: list[str], warnings: list[str]) -> list[str]:
    """Copy the files of these databases into a new store; returns the names of those copied.

    Args:
        left_out, warnings: take what cannot be read.
    """
    copied = []
    for name in ACCOUNTS:
        folder = f"config/{name}"
        try:
            if read_accounts(layout, name) is None:
                continue
            for entry in layout.entries(folder):
                if entry.is_file() and entry.name != "LOCK":
                    _copy(entry.path, os.path.join(target, folder, entry.name), entry.size)
        except (CorruptFile, MissingRuntime, UnreadableStore) as err:
            warnings.append(f"{err}: {folder} is left out")
            left_out.append(folder)
        else:
            copied.append(folder)
    return copied


def _copy(path: str, to: str, size: int) -> None:
    make_folders(os.path.dirname(to))
    with make_file(to) as file:
        for at in range(0, size, _PIECE):
            file.write(at, read_at(path, at, min(_PIECE, size - at)))
        file.sync()
