"""The plan and the result of a conversion."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rmqtool.contract import row_dict
from rmqtool.rules import releases


class StoreForm(StrEnum):
    """What a store is converted to."""

    STORE = "store"  # an ordinary one, its log in one directory
    CONTROLLER = "controller"  # a replica of a group with a controller
    NEWEST = releases.NEWEST.name  # one on which a broker of the newest release starts without changing anything
    ONE_FOLDER = "one-folder"
    FOLDERS = "folders"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that the new store's broker needs; None: without it."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionReport:
    """A conversion.

    Attributes:
        applied: whether the new store was made; otherwise this is the plan.
        folders: directories of its log.
        files, bytes: of the new log.
        messages: number of messages in it; None if they were copied as files.
        sameOffsets: whether physical offsets stay; queue offsets always do.
        settings: what its broker's settings must say.
        changes: what is different in the new store, in words.
    """

    source: str
    store: str
    form: str
    applied: bool
    folders: list[str]
    files: int
    bytes: int
    messages: int | None
    sameOffsets: bool
    settings: list[SettingChange] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields for machine output."""
        return {**row_dict(self), "settings": {change.name: change.value for change in self.settings}}
