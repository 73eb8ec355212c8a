"""Who a broker is and what it allows, by the names of its own properties file (common.BrokerConfig)."""

import socket
from dataclasses import dataclass

from rmqtool.services.opened.broker_state import setting
from rmqtool.store.layout.broker_conf import BrokerConf

DEFAULT_PORT = 10911


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one broker. Times are ms.

    Attributes:
        address: HOST:PORT by which clients reach it.
        engine: whose rules it goes by, "4.9" or "5.3".
        read_only: nothing is stored; only reading is allowed.
    """

    name: str
    cluster: str
    address: str
    engine: str
    read_only: bool = False
    broker_id: int = 0
    auto_create_topics: bool = True
    default_topic_queues: int = 8
    long_polling: bool = True
    property_filter: bool = False
    reject_transactions: bool = False
    notify_consumers: bool = True
    max_message_size: int = 4 << 20
    permission: int = 6
    region: str = "DefaultRegion"
    trace: bool = True

    @classmethod
    def of(
        cls, conf: BrokerConf, address: str, engine: str, *, name: str | None, cluster: str | None, read_only: bool
    ) -> "Settings":
        """As the broker's file has them.

        Args:
            name, cluster: instead of those of the file.

        Raises:
            CorruptFile: a number is none.
        """
        return cls(
            name=name or conf.text("brokerName") or socket.gethostname() or "DEFAULT_BROKER",
            cluster=cluster or conf.text("brokerClusterName") or "DefaultCluster",
            address=address,
            engine=engine,
            read_only=read_only,
            broker_id=setting(conf, "brokerId", 0),
            auto_create_topics=conf.flag("autoCreateTopicEnable", True),
            default_topic_queues=setting(conf, "defaultTopicQueueNums", 8),
            long_polling=conf.flag("longPollingEnable", True),
            property_filter=conf.flag("enablePropertyFilter", False),
            reject_transactions=conf.flag("rejectTransactionMessage", False),
            max_message_size=setting(conf, "maxMessageSize", 4 << 20),
            permission=4 if read_only else setting(conf, "brokerPermission", 6),
            region=conf.text("regionId") or "DefaultRegion",
            trace=conf.flag("traceOn", True),
        )
