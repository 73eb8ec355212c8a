"""Settings of a name server, by RocketMQ's names (common.namesrv.NamesrvConfig)."""

from collections.abc import Iterable
from dataclasses import dataclass

from formats.config.properties import parse_properties
from formats.fastjson.declare import Long
from formats.remoting.fields import from_fields, to_fields
from rmqtool.errors import BadValue, Refused

FIXED = ("configBlackList", "configStorePath", "kvConfigPath")
"""Settings that are not changed over the wire."""


@dataclass
class NamesrvSettings:
    """The settings.

    Attributes:
        order_message_enable: routes have the order topics.
        return_order_topic_config_to_broker: brokers that register get the order topics.
        support_acting_master: the first slave of a broker without a master is shown as one, if it permits that.
        enable_topic_list: topics of clusters and units are listed.
        enable_all_topic_list: all topics are listed.
        scan_not_active_broker_interval: ms between checks for brokers that are gone.
    """

    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True
    scan_not_active_broker_interval: Long = 5000

    def update(self, text: str) -> None:
        """Change settings, given as properties; unknown names are ignored, as in Java.

        Raises:
            Refused: a setting that must not be changed over the wire.
            FormatError, BadValue: an invalid value; nothing has changed.
        """
        properties = parse_properties(text)
        if fixed := [name for name in FIXED if name in properties]:
            raise Refused(f"{', '.join(fixed)} cannot be changed from afar")
        texts = to_fields(self)
        changed = from_fields(
            NamesrvSettings, texts | {name: text.strip() for name, text in properties.items() if name in texts}
        )
        if changed.scan_not_active_broker_interval <= 0:
            raise BadValue("scanNotActiveBrokerInterval must be above 0")
        self.__dict__.update(changed.__dict__)

    def text(self, more: dict[str, str], names: Iterable[str] | None = None) -> str:
        """Lines ``name=value`` in the order of their names.

        Args:
            more: further settings, which cannot be changed.
            names: only these.
        """
        texts = to_fields(self) | more
        wanted = texts.keys() if names is None else texts.keys() & set(names)
        return "".join(f"{name}={texts[name]}\n" for name in sorted(wanted))
