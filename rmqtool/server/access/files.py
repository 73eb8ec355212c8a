"""The files with accounts: conf/plain_acl.yml, and those below conf/acl.

Source: acl.plain.PlainPermissionManager, acl.common.Permission, common.PlainAccessConfig (4.9.8).
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from formats.model.topics import DataVersion
from rmqtool.errors import BadValue, CorruptFile, UnreadableStore
from rmqtool.server.access.addresses import Matches, pattern
from rmqtool.server.access.rights import GROUP_PREFIX, AclPermission
from rmqtool.store.disk.directories import list_dir, read_small

_LARGEST = 1 << 20  # bytes of one file
_QUOTED = re.compile(r"('<[a-z ]+>')|'[^']*'|\"[^\"]*\"")  # the first is PyYAML's name of a token
_MOST_FILES = 1000
_DEEPEST = 10  # depth of folders
_SHORTEST = 7  # characters of a key
_WORDS = re.compile(r"[^=]+")

_PERMS = {
    "PUB": AclPermission.PUB,
    "SUB": AclPermission.SUB,
    "PUB|SUB": AclPermission.PUB | AclPermission.SUB,
    "SUB|PUB": AclPermission.PUB | AclPermission.SUB,
}


@dataclass(frozen=True, kw_only=True)
class Account:
    """One account, as its file has it (common.PlainAccessConfig). Texts are None where the file does not say them."""

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    group_perms: Sequence[str] | None = None


@dataclass(frozen=True)
class Owner:
    """An account, parsed for checks.

    Attributes:
        perms: by resource, a topic or a group's retry topic; None if the account lists none.
    """

    account: Account
    white: Matches
    topic_perm: AclPermission
    group_perm: AclPermission
    perms: dict[str, AclPermission] | None

    def allows(self, resource: str, needed: AclPermission) -> bool:
        """Whether the account has one of the ``needed`` rights."""
        default = self.group_perm if resource.startswith(GROUP_PREFIX) else self.topic_perm
        owned = default if self.perms is None else self.perms.get(resource, default)
        return not owned & AclPermission.DENY and bool(owned & needed)


@dataclass(frozen=True)
class AccessFile:
    """One file.

    Attributes:
        whites: patterns of addresses that need no account.
        content: the whole content, for writing.
    """

    path: str
    whites: Sequence[str]
    accounts: Sequence[Account]
    version: DataVersion
    content: dict[str, Any] = field(repr=False)


def perm_of(text: str | None) -> AclPermission:
    """A right by its name; an unknown name denies."""
    return _PERMS.get((text or "").strip(), AclPermission.DENY)


def owner_of(account: Account) -> Owner:
    """An account, parsed for checks.

    Raises:
        BadValue: a broker would refuse it.
    """
    if min(len(account.access_key), len(account.secret_key)) < _SHORTEST:
        remark = f"The accessKey={account.access_key} and secretKey=******"
        raise BadValue(f"{remark} cannot be null and length should longer than 6")
    perms: dict[str, AclPermission] = {}
    for what, prefix, rows in (("group", GROUP_PREFIX, account.group_perms), ("topic", "", account.topic_perms)):
        for row in rows or ():
            items = _WORDS.findall(row)
            if len(items) != 2:
                raise BadValue(f"Parse resource permission failed for {what}:{row}")
            perms[prefix + items[0].strip()] = perm_of(items[1])
    return Owner(
        account,
        pattern(account.white_remote_address),
        perm_of(account.default_topic_perm),
        perm_of(account.default_group_perm),
        perms or None,
    )


def check_perms(rows: Sequence[str] | None) -> None:
    """Check rights set by a tool, as strictly as a broker does; a file is read more leniently.

    Raises:
        BadValue: a broker would refuse them.
    """
    for row in rows or ():
        items = _WORDS.findall(row)
        if len(items) != 2:
            remark = "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            raise BadValue(f"Parse Resource format error for {row}.\n{remark}")
        if items[1].strip() != "DENY" and perm_of(items[1]) == AclPermission.DENY:
            remark = "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            raise BadValue(f"Parse resource permission error for {row}.\n{remark}")


# -- reading ----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML without aliases, with which a small file could expand to a large one."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.YAMLError("merge keys (<<) are not taken")


def paths_of(default: str) -> list[str]:
    """The files of a broker with this default file: those below ``acl`` beside it, and itself.

    Raises:
        UnreadableStore: a folder cannot be read, or holds far too many files.
    """
    paths = []
    for path in _below(os.path.join(os.path.dirname(default), "acl")):
        paths.append(path)
        if len(paths) > _MOST_FILES:
            raise UnreadableStore(f"{os.path.dirname(path)}: more than {_MOST_FILES} files of accounts")
    return paths if default in paths or not os.path.exists(default) else [*paths, default]


def _below(folder: str, depth: int = 0) -> Iterator[str]:
    for entry in list_dir(folder):
        if entry.name.endswith((".yml", ".yaml")):
            yield entry.path
        elif depth < _DEEPEST and entry.is_dir():
            yield from _below(entry.path, depth + 1)


def read_all(default: str) -> list[AccessFile]:
    """Read all files of a broker with this default file.

    Raises:
        UnreadableStore: a file cannot be read.
        CorruptFile: a file is not valid for a broker.
    """
    return [read(path) for path in paths_of(default)]


def _without_content(problem: str | None) -> str:
    """The error of a file, without quoting it: YAML takes a key beginning with ``*`` or ``!`` for an alias or a tag,
    and would show it.
    """
    return _QUOTED.sub(lambda quoted: quoted[1] or "'******'", problem or "no YAML")


def read(path: str) -> AccessFile:
    """Read a file; an empty one has no accounts.

    Raises:
        UnreadableStore: it cannot be read, or is too large.
        CorruptFile: it is not valid for a broker.
    """
    data = read_small(path, _LARGEST)
    if data is None:
        raise UnreadableStore(f"{path}: No such file or directory")
    try:
        content = yaml.load(data.decode("utf-8"), _Loader)
    except yaml.MarkedYAMLError as err:
        line = err.problem_mark.line + 1 if err.problem_mark else "?"
        raise CorruptFile(path, None, f"line {line}: {_without_content(err.problem)}") from None
    except (yaml.YAMLError, ValueError) as err:  # also for an invalid date
        raise CorruptFile(path, None, _without_content(" ".join(str(err).split()))) from None
    except RecursionError:
        raise CorruptFile(path, None, "nested too deeply") from None
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise CorruptFile(path, None, "it holds no settings")
    try:
        whites = _texts(content, "globalWhiteRemoteAddresses") or []
        for white in whites:
            pattern(white)
        rows = _rows(content, "accounts")
        return AccessFile(path, whites, [_account(row) for row in rows], _version(content), content)
    except BadValue as err:
        raise CorruptFile(path, None, str(err)) from None


def _account(row: dict[Any, Any]) -> Account:
    account = Account(
        access_key=_text(row, "accessKey") or "",
        secret_key=_text(row, "secretKey") or "",
        white_remote_address=_text(row, "whiteRemoteAddress"),
        admin=(_text(row, "admin") or "").lower() in ("true", "1", "y", "t", "yes"),
        default_topic_perm=_text(row, "defaultTopicPerm"),
        default_group_perm=_text(row, "defaultGroupPerm"),
        topic_perms=_texts(row, "topicPerms"),
        group_perms=_texts(row, "groupPerms"),
    )
    owner_of(account)
    return account


def _version(content: dict[Any, Any]) -> DataVersion:
    for row in _rows(content, "dataVersion")[:1]:
        return DataVersion(
            timestamp=_number(row, "timestamp"),
            counter=_number(row, "counter"),
            state_version=_number(row, "stateVersion"),
        )
    return DataVersion(state_version=None)


def _rows(content: dict[Any, Any], name: str) -> list[dict[Any, Any]]:
    rows = content.get(name)
    if rows is None:
        return []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadValue(f"{name} is no list of settings")
    return rows


def _texts(row: dict[Any, Any], name: str) -> list[str] | None:
    texts = row.get(name)
    if texts is None:
        return None
    if not isinstance(texts, list):
        raise BadValue(f"{name} is no list")
    return [_plain(each, name) or "" for each in texts]


def _text(row: dict[Any, Any], name: str) -> str | None:
    return _plain(row.get(name), name)


def _plain(value: Any, name: str) -> str | None:
    """A text; numbers and booleans are converted as in Java."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise BadValue(f"{name} is no text; quote it")


def _number(row: dict[Any, Any], name: str) -> int:
    number = row.get(name, 0)
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadValue(f"{name} of dataVersion is no number")
    return number


# -- writing ----------------------------------------------------------------------------------------------------------


def to_yaml(content: dict[str, Any]) -> bytes:
    """The text of a file as a broker writes it: no comments, block style."""
    text = yaml.safe_dump(content, default_flow_style=False, allow_unicode=True, sort_keys=False)
    return str(text).encode("utf-8")
