"""The command ``mirror``: topics of a live cluster, into a store."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import (
    AclOption,
    BrokerConfOption,
    EngineOption,
    LimitOption,
    Output,
    OutputOption,
    TlsOption,
)
from rmqtool.cli.live.send import NAMESRV, NamesrvOption


@command("mirror", "rmqtool mirror --namesrv 127.0.0.1:9876 Orders Payments store --follow", progress=True)
def mirror(
    words: Annotated[
        list[str], typer.Argument(metavar="TOPIC... STORE", help="The topics, and the store, made where there is none.")
    ],
    namesrv: NamesrvOption = NAMESRV,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new messages, until a signal.")] = False,
    limit: LimitOption = None,
    keep_times: Annotated[
        bool, typer.Option("--keep-times", help="Keep the messages' storeTimestamp instead of the current time.")
    ] = False,
    engine: EngineOption = "auto",
    tls_config: TlsOption = None,
    acl: AclOption = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Copy topics of a live cluster into a store, where each message is once.

    It joins no group and changes nothing at the cluster. Messages keep their queue ids and their order in a queue;
    where several brokers have a topic, those of one number come into one queue. RMQTOOL_ORIGIN tells broker, queue and
    queue offset that a message comes from. How far it is stands in the store, so the same command goes on there,
    however it was ended. It ends at what was the end when it began; with --follow on a signal, which is exit code 0.
    Exit code 1: messages had expired at the cluster before they were copied.
    """
    from rmqtool.cli.live.copying.run_mirror import MirrorPlan, run

    plan = MirrorPlan(
        namesrv=namesrv, topics=tuple(dict.fromkeys(words[:-1])), store=words[-1], follow=follow, limit=limit,
        keep_times=keep_times, engine=engine, tls_config=tls_config, acl=acl, broker_conf=broker_conf,
    )  # fmt: skip
    return run(plan, output.value)
