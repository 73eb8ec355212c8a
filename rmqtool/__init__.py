"""Offline admin and inspection toolkit for Apache RocketMQ store directories."""

from rmqtool.interpreter import offer_this_python
from rmqtool.version import __version__

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from rmqtool.analytics.dump.dump import dump_to_parquet
    from rmqtool.analytics.dump.report import DumpOptions
    from rmqtool.analytics.source.arrow_reader import read_arrow
    from rmqtool.analytics.source.tables_source import register
    from rmqtool.services.consumers.groups import consumer_groups, consumer_lag
    from rmqtool.services.open_store.message import StoredMessage
    from rmqtool.services.open_store.store import Store
    from rmqtool.store.append.outgoing import NewMessage
    from rmqtool.store.log.commit_log import Damage

__all__ = [
    "Damage", "DumpOptions", "NewMessage", "Store", "StoredMessage", "__version__", "consumer_groups", "consumer_lag",
    "dump_to_parquet", "read_arrow", "register",
]  # fmt: skip
_LAZY = {
    "Damage": "rmqtool.store.log.commit_log",
    "DumpOptions": "rmqtool.analytics.dump.report",
    "NewMessage": "rmqtool.store.append.outgoing",
    "Store": "rmqtool.services.open_store.store",
    "StoredMessage": "rmqtool.services.open_store.message",
    "consumer_groups": "rmqtool.services.consumers.groups",
    "consumer_lag": "rmqtool.services.consumers.groups",
    "dump_to_parquet": "rmqtool.analytics.dump.dump",
    "read_arrow": "rmqtool.analytics.source.arrow_reader",
    "register": "rmqtool.analytics.source.tables_source",
}


def __getattr__(name: str) -> object:
    """Load what a name needs when it is first used: most commands do without."""
    if name == "Message":
        name = "NewMessage"  # as it was called before there was a client, which has a Message, too
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


offer_this_python()  # a script that imports this and starts a session finds the data source
