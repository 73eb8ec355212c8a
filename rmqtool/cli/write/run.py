"""The command ``run``: serve a store without a broker."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, Output, OutputOption, StoreDir, option


@command("run", "rmqtool run store --until delivered --transactions 'exec ./decide.sh'", progress=True)
def run(
    store: StoreDir,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, then end.")] = False,
    until: Annotated[
        str | None, option("--until", "TIME", "End at this time; delivered: when no delayed message waits any more.")
    ] = None,
    transactions: Annotated[
        str | None,
        option(
            "--transactions",
            "ANSWER",
            "Check open transactions and answer unknown, commit, rollback or what exec COMMAND prints; by default "
            "they are left alone.",
        ),
    ] = None,
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Run a store's services without a broker: deliver delayed messages and retries, check transactions.

    The store is locked as by a broker, and left as one that stopped cleanly: on SIGINT or SIGTERM, with --once, or at
    --until. delay due lists beforehand what would be delivered, transaction list what would be checked.

    exec runs COMMAND for every half message that is due, with the message as JSON on its stdin (topic, queueId, body,
    properties, msgId, producerGroup, checkTimes ...); its output is the answer: commit, rollback or unknown. As in a
    broker, each check moves the half message to the end of its queue, and after transactionCheckMax checks without an
    answer it is given up. A command that cannot be started is an error, not an answer; one that is silent for a minute
    is ended. Exit code 1: something could not be delivered; stderr says what. --until delivered does not wait for
    messages behind such a failure: it ends with that code when nothing more can be delivered.
    """
    from rmqtool.cli.write.run_services import run_loop

    return run_loop(store, broker_conf, once=once, until=until, transactions=transactions, output=output.value)
