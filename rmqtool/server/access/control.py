"""Checks each request of a broker against the accounts in plain_acl.yml, which may change at any time.

Source: acl.plain.PlainPermissionManager, srvutil.AclFileWatchService (4.9.8).
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from formats.errors import FormatError
from formats.model.topics import DataVersion
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.topics import TRACE
from rmqtool.errors import BadValue, RmqError
from rmqtool.remoting.signing import ACCESS_KEY, is_signed_by
from rmqtool.server.access import files
from rmqtool.server.access.addresses import Matches, address_of, pattern
from rmqtool.server.access.files import AccessFile, Account, Owner
from rmqtool.server.access.rights import GROUP_PREFIX, AclPermission
from rmqtool.server.broker.context.answers import Failed
from rmqtool.store.disk.durable import replace_file

log = logging.getLogger(__name__)

LOOK = 1.0  # s between checks whether a file has changed

FindNeeds: TypeAlias = Callable[[], Mapping[str, AclPermission] | None]
"""What a request needs, by topic or group's retry topic; None where only an administrator may ask."""


@dataclass
class _Known:
    """The contents of all files."""

    files: list[AccessFile] = field(default_factory=list)
    whites: list[Matches] = field(default_factory=list)
    owners: dict[str, Owner] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # the file of each account


class AccessControl:
    """The access control of one broker.

    Args:
        path: the default file, plain_acl.yml; files below ``acl`` beside it count too.
        clock: ms since the epoch.

    Raises:
        CorruptFile: a file is not valid for a broker.
        UnreadableStore: a file cannot be read.
    """

    def __init__(self, path: str, clock: Callable[[], int]) -> None:
        self.path = os.path.abspath(path)
        self._clock = clock
        self._wrong = ""  # why the files cannot be read now
        self._seen = self._look()
        self._known = self._load()
        self._writing = asyncio.Lock()
        if not self._known.owners and not self._known.whites:
            log.warning("%s: no account and no address: nobody may do anything", self.path)

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self, peer: str, request: Command, find_needs: FindNeeds) -> None:
        """Check a request of a peer HOST:PORT.

        Args:
            find_needs: gives the rights that the request needs; only called for signed requests.

        Raises:
            Failed: it is not permitted.
        """
        try:
            self._check(peer, request, find_needs)
        except (FormatError, BadValue) as err:  # the right that it needs is unknown
            raise _refusal(str(err)) from None

    def _check(self, peer: str, request: Command, find_needs: FindNeeds) -> None:
        known, address = self._known, address_of(peer)
        if address is not None and any(matches(address) for matches in known.whites):
            return
        key = (request.fields or {}).get(ACCESS_KEY)
        if key is None:
            raise _refusal("No accessKey is configured")
        owner = known.owners.get(key)
        if owner is None:
            raise _refusal(f"No acl config for {key}")
        if address is not None and owner.white(address):
            return
        if not is_signed_by(request, owner.account.secret_key):
            raise _refusal(f"Check signature failed for accessKey={key}")
        needed = find_needs()
        if needed is None:
            if not owner.account.admin:
                remark = f"Need admin permission for request code={request.code}, but accessKey={key} is not"
                raise _refusal(remark)
            return
        if needed == {TRACE: AclPermission.PUB} or (owner.perms is None and owner.account.admin):
            return
        for resource, perm in needed.items():
            if not owner.allows(resource, perm):
                raise _refusal(f"No default permission for {_name_of(resource)}")

    # -- reading ------------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Read the files again whenever they change; if that fails, log it and keep the accounts."""
        while True:
            await asyncio.sleep(LOOK)
            async with self._writing:
                await asyncio.to_thread(self._refresh)

    def _refresh(self) -> None:
        try:
            seen = self._look()
            if seen == self._seen:
                return
            self._seen = seen
            self._known = self._load()
        except (OSError, RmqError) as err:
            if str(err) != self._wrong:
                log.warning("%s: who may do what stays as it was", err)
            self._wrong = str(err)
        else:
            self._wrong = ""
            log.info("%s: %d accounts are known", self.path, len(self._known.owners))

    def _look(self) -> tuple[Any, ...]:
        states = []
        for path in files.paths_of(self.path):
            status = os.stat(path)
            states.append((path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        return tuple(states)

    def _load(self) -> _Known:
        known = _Known()
        for file in files.read_all(self.path):
            known.files.append(file)
            known.whites += map(pattern, file.whites)
            for account in file.accounts:
                key = account.access_key
                if key in known.owners:
                    log.warning("%s: accessKey %s is there already; the first one counts", file.path, key)
                    continue
                known.owners[key] = files.owner_of(account)
                known.places[key] = file.path
        return known

    @property
    def accounts(self) -> list[Account]:
        """All accounts."""
        return [owner.account for owner in self._known.owners.values()]

    @property
    def whites(self) -> list[str]:
        """Patterns of the addresses that need no account."""
        return [white for file in self._known.files for white in file.whites]

    @property
    def versions(self) -> dict[str, DataVersion]:
        """The data version of each file."""
        return {file.path: file.version for file in self._known.files if file.content}

    # -- changing -----------------------------------------------------------------------------------------------------

    async def update(self, account: Account) -> None:
        """Create an account, or change the given fields of one.

        Raises:
            BadValue: a broker would refuse it.
        """
        files.owner_of(account)
        files.check_perms(account.topic_perms)
        files.check_perms(account.group_perms)
        async with self._writing:
            path = self._known.places.get(account.access_key, self.path)
            await asyncio.to_thread(self._change, path, lambda content: _put_account(content, account))

    async def delete(self, access_key: str) -> bool:
        """Delete an account; returns whether it existed."""
        async with self._writing:
            path = self._known.places.get(access_key)
            if path is None:
                return False
            await asyncio.to_thread(self._change, path, lambda content: _drop_account(content, access_key))
        return True

    async def set_whites(self, patterns: Sequence[str], path: str | None) -> bool:
        """Set a file's addresses that need no account; returns whether it is one of the files.

        Raises:
            BadValue: one is not a pattern.
        """
        for each in patterns:
            pattern(each)
        path = path or self.path
        async with self._writing:
            if path not in files.paths_of(self.path):
                return False

            def put(content: dict[str, Any]) -> None:
                content["globalWhiteRemoteAddresses"] = list(patterns)

            await asyncio.to_thread(self._change, path, put)
        return True

    def _change(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the current content of a file, and read all files again."""
        content = files.read(path).content if os.path.lexists(path) else {}
        change(content)
        version = _dicts(content, "dataVersion")
        counter = version[0].get("counter", 0) if version else 0
        content["dataVersion"] = [{"counter": int(counter) + 1, "timestamp": self._clock()}]
        replace_file(path, files.to_yaml(content), keep=True)
        self._seen = self._look()
        self._known = self._load()


def _refusal(reason: str) -> Failed:
    return Failed(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {reason}")


def _name_of(resource: str) -> str:
    group = resource.startswith(GROUP_PREFIX)
    return f"group:{resource.removeprefix(GROUP_PREFIX)}" if group else f"topic:{resource}"


def _dicts(content: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = content.get(name)
    return rows if isinstance(rows, list) else []


def _put_account(content: dict[str, Any], account: Account) -> None:
    rows = _dicts(content, "accounts")
    known = next((row for row in rows if str(row.get("accessKey")) == account.access_key), None)
    row: dict[str, Any] = {} if known is None else known
    changes = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm or None,
        "defaultGroupPerm": account.default_group_perm or None,
        "topicPerms": None if account.topic_perms is None else list(account.topic_perms),
        "groupPerms": None if account.group_perms is None else list(account.group_perms),
    }
    row.update({name: value for name, value in changes.items() if value is not None})
    content["accounts"] = [*(each for each in rows if each is not known), row]


def _drop_account(content: dict[str, Any], access_key: str) -> None:
    content["accounts"] = [row for row in _dicts(content, "accounts") if str(row.get("accessKey")) != access_key]
