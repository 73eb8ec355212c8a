"""The command ``browse``: a store in a terminal."""

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, StoreOrTarget


@command("browse", "rmqtool browse store")
def browse(store: StoreOrTarget, broker_conf: BrokerConfOption = None) -> int:
    """Look around in a store or a live cluster in the terminal: topics, queues, messages, groups and findings.

    Arrows move, Enter opens, Escape goes back; / searches, n finds the next, e exports to a file as NDJSON, 1 to 3 show
    topics, groups and findings, and q quits. A message is shown with its properties, body and trace. The store is only
    read, and of a queue only the messages on the screen. The findings of a cluster are those of doctor.
    """
    import sys

    from rmqtool.cli.browse.places import ClusterPlace, StorePlace
    from rmqtool.cli.framework.opening import live_target, need_messages
    from rmqtool.errors import BadValue

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadValue("browse needs a terminal")
    try:
        from rmqtool.cli.browse.app import Browser
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] != "textual":
            raise
        raise BadValue("browse needs Textual: pip install textual") from None
    if (target := live_target(store)) is not None:
        browser = Browser(ClusterPlace(store, target))
    else:
        browser = Browser(StorePlace(store, need_messages(store, broker_conf).layout))
    browser.run()
    return 128 + browser.stopped_by if browser.stopped_by else browser.return_code or 0
