"""``config --yaml``: topics and groups as the file that ``apply`` takes."""

import sys

from formats.config.files import SubscriptionGroups, Topics
from rmqtool.admin.changes.declared import declare
from rmqtool.admin.live.questions import Questions, ask
from rmqtool.admin.live.tables import fetch_groups, fetch_topics
from rmqtool.cli.framework.opening import live_target, open_store
from rmqtool.cli.render.rows import Warnings
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import UnreadableStore
from rmqtool.services.lookup.configs import load_config
from rmqtool.services.lookup.queue_messages import TopicQueues
from rmqtool.words import command_line


def write_declared(store: str, broker_conf: str | None) -> int:
    """Write the file to stdout. Half of a cluster or of a store would be a wrong file.

    Raises:
        ClientError: a broker does not answer.
        CorruptFile: a table of the store cannot be read.
        UnreadableStore: a store without the tables, or with messages and without its topics.
    """
    warn = Warnings()
    if (target := live_target(store)) is not None:

        async def work(questions: Questions) -> str:
            nodes = await questions.masters()
            topics, groups = await fetch_topics(questions, nodes), await fetch_groups(questions, nodes)
            if len(topics) < len(nodes) or len(groups) < len(nodes):
                raise ClientError(f"{'; '.join(questions.reasons())}: no file was written")
            return declare(
                {node.name: table for node, table in topics.items()},
                {node.name: table for node, table in groups.items()},
            )

        text = ask(target, warn, work)
    else:
        layout = open_store(store, broker_conf)
        topics, groups = (load_config(layout, name, warn) for name in ("topics.json", "subscriptionGroup.json"))
        if topics is None and groups is None:
            raise UnreadableStore(f"{layout.root}: neither topics nor groups are there")
        if topics is None and TopicQueues(layout).topics():
            make = command_line("rebuild", layout.root, "config")
            raise UnreadableStore(
                f"{layout.root}: has messages, but no topics.json ({make} makes it): no file was written"
            )
        text = declare(
            {"": topics.topics if isinstance(topics, Topics) else {}},
            {"": groups.groups if isinstance(groups, SubscriptionGroups) else {}},
        )
    sys.stdout.write(text)
    sys.stdout.flush()
    return warn.tell()
