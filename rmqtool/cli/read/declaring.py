"""``config --yaml``: topics and groups as the file that ``apply`` takes."""

import sys

from rmqtool.admin.changes.declared import declare
from rmqtool.admin.live.questions import Questions, ask
from rmqtool.admin.live.tables import fetch_groups, fetch_topics
from rmqtool.cli.framework.opening import live_target, open_store
from rmqtool.cli.render.rows import Warnings
from rmqtool.client.cluster.errors import ClientError
from rmqtool.errors import UnreadableStore
from rmqtool.services.lookup.configs import groups_of, topics_of


def write_declared(store: str, broker_conf: str | None) -> int:
    """Write the file to stdout. Half of a cluster would be a wrong file, so every broker must answer.

    Raises:
        ClientError: a broker does not answer.
        UnreadableStore: a store without the tables.
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
        topic_table, group_table = topics_of(layout, warn), groups_of(layout, warn)
        if topic_table is None and group_table is None:
            raise UnreadableStore(f"{layout.root}: neither topics nor groups are there")
        text = declare(
            {"": topic_table.topics if topic_table is not None else {}},
            {"": group_table.groups if group_table is not None else {}},
        )
    sys.stdout.write(text)
    sys.stdout.flush()
    return warn.tell()
