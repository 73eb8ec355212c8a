"""The target of a command: a store directory or a live cluster.

A cluster is given as ``rocketmq://HOST:9876[,HOST2:9876][/CLUSTER]``, or as ``@NAME``, a profile in the user's config
file.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.errors import BadValue

SCHEME = "rocketmq://"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]/@;]+):([0-9]{1,5})", re.ASCII)
_FORM = "give rocketmq://HOST:9876[,HOST2:9876][/CLUSTER]"
_SETTINGS = ("namesrv", "cluster", "tls-config", "acl", "access-key-env", "secret-key-env")
_FILES = ("tls-config", "acl")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A live cluster.

    Attributes:
        text: the user's argument.
        namesrv: addresses of the name servers.
        cluster: name of the cluster; None for all brokers that the name servers know.
        tls_config: path of a ``tls.properties``; None for plain connections.
        acl: path of a file with keys to sign requests; None to use the environment variables, if set.
        key_names: names of these variables; None for the default ones.
    """

    text: str
    namesrv: tuple[str, ...]
    cluster: str | None = None
    tls_config: str | None = None
    acl: str | None = None
    key_names: tuple[str, str] | None = None


def is_live(text: str) -> bool:
    """Whether an argument is a cluster; ``@NAME`` is not if there is a file of that name."""
    return text.startswith(SCHEME) or (text.startswith("@") and not os.path.lexists(text))


def looks_live(text: str) -> bool:
    """Whether an argument is the name of a cluster but for its scheme, and there is no file of that name."""
    addresses = text.partition("/")[0].split(",")
    return all(map(_ADDRESS.fullmatch, addresses)) and not os.path.lexists(text)


def parse_target(text: str, profiles: Mapping[str, Mapping[str, Any]] | None = None) -> Target:
    """Parse the name of a cluster.

    Args:
        profiles: profiles of the config file by name, from :func:`rmqtool.cli.defaults.read_profiles`.

    Raises:
        BadValue: an address is missing or invalid, or there is no such profile.
    """
    if text.startswith("@"):
        profiles_by_name = profiles or {}
        if text[1:] not in profiles_by_name:
            names = ", ".join(f"@{name}" for name in sorted(profiles_by_name)) or "none"
            raise BadValue(f"{text}: no target of that name in the config file, which has {names}")
        return _read_profile(text, profiles_by_name[text[1:]])
    if "?" in text or "#" in text:
        raise BadValue(f"{_mask_password(text)}: {_FORM}, and settings in a profile of the config file")
    addresses, slash, cluster = text.removeprefix(SCHEME).partition("/")
    if slash and (not cluster or "/" in cluster):
        raise BadValue(f"{_mask_password(text)}: {_FORM}")
    return Target(text=text, namesrv=_addresses(addresses, _mask_password(text)), cluster=cluster or None)


def _addresses(text: str, where: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in re.split("[,;]", text) if part.strip())
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[2]) <= 0xFFFF:
            raise BadValue(f"{where}: not HOST:PORT between the commas: {_FORM}")
    if not addresses:
        raise BadValue(f"{where}: no address of a name server: {_FORM}")
    return addresses


def _mask_password(text: str) -> str:
    """A target without the part before ``@``, which may be a password."""
    head, at, rest = text.removeprefix(SCHEME).rpartition("@")
    return f"{SCHEME}***@{rest}" if at and head else text


def _read_profile(text: str, table: Mapping[str, Any]) -> Target:
    for name, value in table.items():
        if name not in _SETTINGS:
            raise BadValue(f"{text}: {name!r} is no setting of a target: {', '.join(_SETTINGS)} are")
        if not isinstance(value, str) or not value:
            raise BadValue(f"{text}: {name} is not a text")
    names = (table.get("access-key-env"), table.get("secret-key-env"))
    if any(names) and (not all(names) or "acl" in table):
        raise BadValue(f"{text}: give both access-key-env and secret-key-env, or acl alone")
    if "namesrv" not in table:
        raise BadValue(f"{text}: no namesrv")
    return Target(
        text=text,
        namesrv=_addresses(table["namesrv"], f"{text}: namesrv"),
        cluster=table.get("cluster"),
        tls_config=table.get("tls-config"),
        acl=table.get("acl"),
        key_names=(names[0], names[1]) if names[0] and names[1] else None,
    )


def resolve_files(table: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """A profile with file names resolved relative to the config file's directory."""
    return {
        name: os.path.join(folder, os.path.expanduser(value)) if name in _FILES and isinstance(value, str) else value
        for name, value in table.items()
    }
