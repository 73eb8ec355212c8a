"""Offline admin and inspection toolkit for Apache RocketMQ store directories."""

from rmqtool.interpreter import offer_this_python

TYPE_CHECKING = False  # typing's own would have to be imported
if TYPE_CHECKING:
    from rmqtool.services.opened.engine import Store
    from rmqtool.store.append.outgoing import Message

__version__ = "0.1.0"
__all__ = ["Message", "Store", "__version__"]
_LAZY = {"Store": "rmqtool.services.opened.engine", "Message": "rmqtool.store.append.outgoing"}


def __getattr__(name: str) -> object:
    """The engine is loaded when it is first asked for: most commands do without."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


offer_this_python()  # a script that imports this and starts a session finds the data source
