"""The option for attributes of topics and groups (5.x)."""

from collections.abc import Sequence
from typing import Annotated

from rmqtool.cli.framework.options import option
from rmqtool.errors import BadValue

AttributeOption = Annotated[
    list[str] | None, option("--attribute", "ATTRIBUTE", "NAME=VALUE, of 5.x; NAME= takes it away; may be repeated.")
]


def attributes_of(texts: Sequence[str] | None) -> dict[str, str | None]:
    """The attributes by name; None for one that is taken away.

    Raises:
        BadValue: one is not NAME=VALUE, or has a character that brokers take for a separator.
    """
    attributes: dict[str, str | None] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not name or not sign or any(part in text for part in ",+"):
            raise BadValue(f"--attribute {text}: give NAME=VALUE, or NAME= to take it away")
        attributes[name] = value or None
    return attributes
