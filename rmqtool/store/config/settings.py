"""Every broker setting of each release, with its type and default.

Source: ``settings-RELEASE.json``, extracted by ``python -m tests.interop.broker_settings`` from the classes of 4.9.8,
5.3.3, 5.4.0, 5.5.0 and 5.5.1: what common.MixAll.properties2Object accepts for BrokerConfig, MessageStoreConfig,
NettyServerConfig, NettyClientConfig, AuthConfig and the tier's MessageStoreConfig, and what BrokerStartup passes to the
system.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.rules.releases import LATER, RELEASES, Release
from rmqtool.store.layout.broker_conf import parse_int


def _of_line(name: str) -> tuple[str, ...]:
    """A release, and later ones of its line, which may have further settings."""
    return (name, *(release.full_version for release in LATER if release.name == name))


FIRST_OF = tuple(each for name in RELEASES for each in _of_line(name))
"""The releases whose settings are known, the oldest first."""

_BITS = {"int": 32, "long": 64}
_CHOICES = {
    "brokerRole": ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
    "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH"),
}  # texts that are names of constants; BrokerRole.valueOf and FlushDiskType.valueOf take no other


class Setting(NamedTuple):
    """One setting.

    Attributes:
        kind: ``int``, ``long``, ``double``, ``float``, ``boolean`` or ``String``.
        default: the value that a broker uses if its file does not set one; None if there is none, or if it depends on
            the machine.
        choices: the only texts that a broker takes; empty if there are others.
    """

    kind: str
    default: Any
    choices: tuple[str, ...] = ()

    def takes(self, text: str) -> Any:
        """The value that a broker uses for a text; None if it ignores the text and uses the default.

        ``Integer.parseInt`` and its like do not allow blanks around a number; ``Boolean.parseBoolean`` reads everything
        except "true" as false.
        """
        if self.kind in _BITS:
            return parse_int(text, _BITS[self.kind])
        if self.kind in ("double", "float"):
            try:
                return float(text) if text.isascii() and "_" not in text else None
            except ValueError:
                return None
        if self.choices and text not in self.choices:
            return None
        return text.lower() == "true" if self.kind == "boolean" else text


@cache
def classes_of(release: str) -> dict[str, dict[str, list[Any]]]:
    """Class to setting to [type, default], of one of :data:`FIRST_OF`."""
    classes: dict[str, dict[str, list[Any]]] = json.loads(_path(release).read_bytes())
    return classes


def _path(release: str) -> Path:
    return Path(__file__).with_name(f"settings-{release}.json")


@cache
def settings_of(release: Release) -> dict[str, Setting]:
    """The settings of a release by name; a release without a file of its own has those of the release before.

    Those that only a later release of the line has are among them.
    """
    older = [known for known in RELEASES.values() if known.version < release.version]
    name = next(known.name for known in (release, *reversed(older)) if _path(known.name).exists())
    by_name: dict[str, Setting] = {}
    for each in _of_line(name):
        for settings in classes_of(each).values():
            for setting, (kind, default) in settings.items():
                by_name.setdefault(setting, Setting(kind, default, _CHOICES.get(setting, ())))
    return by_name


def nearest(name: str, release: Release) -> str | None:
    """The setting that was probably meant by a misspelt name."""
    from difflib import get_close_matches

    known = settings_of(release)
    same = next((setting for setting in known if setting.lower() == name.lower()), None)
    return same or next(iter(get_close_matches(name, known, 1, 0.84)), None)
