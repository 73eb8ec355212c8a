"""What all configuration files have in common."""

from dataclasses import dataclass
from typing import ClassVar

from formats.fastjson.declare import Bean
from formats.fastjson.dialects import FILE, Dialect
from formats.fastjson.write import dumps
from formats.versions import V4_9, VERSIONS, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile(Bean):
    """A whole file."""

    SINCE: ClassVar[Version] = V4_9  # the first version that has the file
    DIALECT: ClassVar[Dialect] = FILE

    def build(self, version: Version = V4_9) -> bytes:
        """The file as a broker of a version writes it, apart from the order of tables, which is ours.

        Args:
            version: of the broker. Members that came later are left out; a file that came later is built for the
                version that brought it. `extra` members are always written: brokers skip what they do not know.

        Raises:
            ValueError: a version whose forms are not known, or `extra` holds what JSON cannot.
        """
        if version not in VERSIONS:
            raise ValueError(f"{version} is not one of {', '.join(map(str, VERSIONS))}")
        return dumps(self.write(max(version, self.SINCE)), self.DIALECT)
