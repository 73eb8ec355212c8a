"""The command ``serve``: a broker on a store."""

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import BrokerConfOption, EngineOption, Output, OutputOption, TlsOption

if TYPE_CHECKING:
    import asyncio

    from rmqtool.server.serve import Served, ServeOptions


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
    transactions go on as in a broker. It listens on this machine alone unless --listen says otherwise, and asks nobody
    for a password, unless --acl-config or aclEnable=true in the broker's file says who may do what (ACL 1.0).

    --read-only is for a rescued store: consumers drain it, nothing below STORE is changed, not even a lock is taken,
    and how far each group has come is kept in a CSV file beside the store, from where group reset --from-csv takes it.

    --follow does the same with a store that a broker is writing at this moment: what that stores is served within a
    second, and nothing of it is locked or changed.

    --metrics serves figures for Prometheus under the names of the RocketMQ exporter; the ready line has its address.

    What is acknowledged survives a killed process, and with flushDiskType=SYNC_FLUSH a power cut. SIGINT and SIGTERM
    end it cleanly, with exit code 0, and leave the store as a broker does.
    """
    from rmqtool.cli.framework.opening import chosen_release
    from rmqtool.cli.render.times import parse_time
    from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async
    from rmqtool.errors import BadValue
    from rmqtool.remoting.tls import PLAIN, server_tls
    from rmqtool.rules.releases import NEWEST
    from rmqtool.server.serve import ServeOptions

    if read_only and create:
        raise BadValue("--read-only cannot be used with --create: a new store has nothing to read")
    if follow and create:
        raise BadValue("--follow cannot be used with --create: nobody writes to a new store")
    if follow and namesrv is not None:
        raise BadValue("--follow cannot be used with --namesrv: clients would take this broker for the live one")
    if offsets is not None and not (read_only or follow):
        raise BadValue("--offsets needs --read-only or --follow: otherwise offsets are kept in the store")
    servers = [part.strip() for part in (namesrv or "").split(";") if part.strip()]
    for server in servers:
        address_of(server, "--namesrv")
    options = ServeOptions(
        broker_conf=broker_conf,
        listen=None if listen is None else address_of(listen, "--listen"),
        namesrv=tuple(servers),
        namesrv_listen=address_of(namesrv_listen, "--namesrv-listen"),
        name=name,
        cluster=cluster,
        create=create,
        release=chosen_release(engine) or (NEWEST if create and not os.path.lexists(store) else None),
        read_only=read_only,
        follow=follow,
        offsets=offsets,
        metrics=None if metrics is None else address_of(metrics, "--metrics"),
        acl=acl_config,
        tls=PLAIN if tls_config is None else server_tls(tls_config),
    )
    end = None if until is None else parse_time(until)
    log_to_stderr()
    run_async(_serve(store, options, end, output.value))
    return 0


async def _serve(store: str, options: "ServeOptions", end: int | None, output: str) -> None:
    from contextlib import AsyncExitStack

    from rmqtool.cli.render.progress import showing
    from rmqtool.cli.serve.running import say_ready, until_stopped
    from rmqtool.server.serve import Served

    async with until_stopped() as stop, AsyncExitStack() as stack:
        with showing("auto", streams=False):  # recovering the store may take a while
            served = await stack.enter_async_context(Served(store, options))
        addresses = {"broker": served.broker_address, "namesrv": ";".join(served.name_servers)}
        say_ready(output, addresses | ({"metrics": served.metrics_address} if served.metrics_address else {}))
        async with _status(served):
            await _until(stop, served, end)


@asynccontextmanager
async def _status(served: "Served") -> AsyncIterator[None]:
    """Live status on a terminal; Rich is imported only for that."""
    if not sys.stderr.isatty():
        yield
        return
    from rmqtool.cli.serve.live_status import live_status

    async with live_status(served):
        yield


async def _until(stop: "asyncio.Event", served: "Served", end: int | None) -> None:
    """Wait for a signal, the end time, or a fatal error."""
    import asyncio

    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(served.wait())]
    left = None if end is None else max(end / 1000 - time.time(), 0)
    done, others = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*done)
