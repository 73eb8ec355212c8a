"""The base class of all configuration files."""

from dataclasses import dataclass
from typing import ClassVar

from formats.fastjson.declare import Bean
from formats.fastjson.dialects import FILE, Dialect
from formats.fastjson.write import dumps
from formats.versions import V4_9, VERSIONS, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile(Bean):
    """A complete file."""

    SINCE: ClassVar[Version] = V4_9  # the first version that has the file
    DIALECT: ClassVar[Dialect] = FILE

    def build(self, version: Version = V4_9) -> bytes:
        """The file as written by a broker of a version, except for the order of tables, which is kept.

        Args:
            version: of the broker. Members added later are left out; a file added later is built for the version that
                introduced it. `extra` members are always written: brokers ignore unknown members.

        Raises:
            ValueError: an unknown version, or `extra` contains something that JSON cannot represent.
        """
        if version not in VERSIONS:
            raise ValueError(f"{version} is not one of {', '.join(map(str, VERSIONS))}")
        return dumps(self.write(max(version, self.SINCE)), self.DIALECT)
