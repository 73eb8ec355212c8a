"""The command ``browse``: a store in a terminal."""

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, StoreDir


@command("browse", "rmqtool browse store")
def browse(store: StoreDir, broker_conf: BrokerConfOption = None) -> int:
    """Look around in a store in the terminal: topics, queues, messages, groups, and findings of check.

    Arrows move, Enter opens, Escape goes back; / searches, n finds the next, e exports to a file as NDJSON, 1 to 3 show
    topics, groups and findings, and q quits. A message is shown with its properties, body and trace. The store is only
    read, and of a queue only the messages on the screen.
    """
    import sys

    from rmqtool.cli.framework.opening import need_messages
    from rmqtool.errors import BadValue

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadValue("browse needs a terminal")
    try:
        from rmqtool.cli.browse.app import Browser
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] != "textual":
            raise
        raise BadValue("browse needs Textual: pip install textual") from None
    browser = Browser(store, need_messages(store, broker_conf).layout)
    browser.run()
    return 128 + browser.stopped_by if browser.stopped_by else browser.return_code or 0
