"""The command ``serve``: a broker on a store."""

from typing import Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, TlsOption


@command("serve", "rmqtool serve store --read-only")
def serve(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store directory.")],
    create: Annotated[bool, typer.Option("--create", help="Make the store where there is none.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing below STORE; producers are refused, consumers drain.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="As --read-only, of a store that a live broker is writing.")
    ] = False,
    offsets: Annotated[
        str | None,
        typer.Option("--offsets", metavar="FILE", help="With --read-only or --follow, keep groups' offsets here."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; by default 127.0.0.1 and listenPort."),
    ] = None,
    namesrv: Annotated[
        str | None,
        typer.Option(
            "--namesrv",
            metavar="ADDRS",
            help="Register with these name servers (HOST:PORT;...) without one of its own.",
        ),
    ] = None,
    namesrv_listen: Annotated[
        str, typer.Option("--namesrv-listen", metavar="HOST:PORT", help="Where its own name server listens.")
    ] = "127.0.0.1:9876",
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The broker's name.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="The cluster's name.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="End at this time.")] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus here, at /metrics."),
    ] = None,
    tls_config: TlsOption = None,
    acl_config: Annotated[
        str | None,
        typer.Option("--acl-config", metavar="FILE", help="Who may do what, as in plain_acl.yml; turns that on."),
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: BrokerConfOption = None,
) -> int:
    """Serve a store to RocketMQ clients, as a broker does, with a name server of its own.

    A store that --create makes is one of 5.3, unless --engine says 4.9; clients of both work with either.

    When it takes requests it prints one line on stdout: "ready broker=HOST:PORT namesrv=HOST:PORT". Unmodified clients
    of 4.9 and 5.3 send, consume and ask by that name server's address; mqadmin works too. Delays, retries and
    transactions go on as in a broker. It listens on this machine alone unless it is told otherwise, and asks nobody for
    a password, unless --acl-config or aclEnable=true in the broker's file says who may do what (ACL 1.0).

    --read-only is for a rescued store: consumers drain it, nothing below STORE is changed, not even a lock is taken,
    and how far each group has come is kept in a CSV file beside the store, from where group reset --from-csv takes it.

    --follow does the same with a store that a broker is writing at this moment: what that stores is served within a
    second, and nothing of it is locked or changed.

    --metrics serves figures for Prometheus under the names of the RocketMQ exporter; the ready line has its address.

    What is acknowledged survives a killed process, and with flushDiskType=SYNC_FLUSH a power cut. SIGINT and SIGTERM
    end it cleanly, with exit code 0, and leave the store as a broker does.
    """
    from rmqtool.cli.serve.run_serve import run

    return run(
        store, broker_conf, create=create, read_only=read_only, follow=follow, offsets=offsets, listen=listen,
        namesrv=namesrv, namesrv_listen=namesrv_listen, name=name, cluster=cluster, until=until, tls_config=tls_config,
        metrics=metrics, acl_config=acl_config, engine=engine, output=output.value,
    )  # fmt: skip
