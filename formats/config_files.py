"""The configuration files of a broker, typed: one model per file, ``parse`` and ``build``.

Members, defaults and version differences after the Java class named at each model (apache/rocketmq 4.9.8 and 5.3.3;
the managers in ``broker``, the wrapper classes in ``remoting``, ``common`` in 4.9). Times are milliseconds since the
epoch. Tables keep the order of the file, which is Java's hash order, so a file that is read and built for the version
that wrote it has the same bytes again; the one exception is a ``{"$ref":…}``, which is built in full because the
brokers themselves do not read it back (`formats.config_beans.Kind.write`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

from formats.config_beans import ENGINES, FLAG, INT, LONG, TEXT, Bean, ConfigFile, Engine, Items, Key, Nested, Numbered
from formats.config_beans import Table, Value, member
