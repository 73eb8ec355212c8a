"""The command ``serve``: a broker on a store."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import ConfsOption, EngineOption, Output, OutputOption, TlsOption, option

if TYPE_CHECKING:
    import asyncio

    from rmqtool.server.serve import Served, ServeOptions
    from rmqtool.store.layout.paths import StoreLayout


@command("serve", "rmqtool serve store --read-only")
def serve(
    stores: Annotated[
        list[str],
        typer.Argument(metavar="STORE...", help="The store directory; with --read-only also all copies of a store."),
    ],
    create: Annotated[bool, typer.Option("--create", help="Create the store if it does not exist.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing below STORE; producers are refused, consumers drain.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Like --read-only, for a store that a live broker is writing.")
    ] = False,
    offsets: Annotated[
        str | None, option("--offsets", "FILE", "With --read-only or --follow: file for the groups' offsets.")
    ] = None,
    listen: Annotated[
        str | None, option("--listen", "HOST:PORT", "Address to listen on; by default 127.0.0.1 and listenPort.")
    ] = None,
    namesrv: Annotated[
        str | None,
        option("--namesrv", "ADDRS", "Register with these name servers (HOST:PORT;...) instead of an own one."),
    ] = None,
    namesrv_listen: Annotated[
        str, option("--namesrv-listen", "HOST:PORT", "Address of its own name server.")
    ] = "127.0.0.1:9876",
    name: Annotated[str | None, option("--name", "NAME", "Name of the broker.")] = None,
    cluster: Annotated[str | None, option("--cluster", "NAME", "Name of the cluster.")] = None,
    until: Annotated[str | None, option("--until", "TIME", "End at this time.")] = None,
    metrics: Annotated[
        str | None, option("--metrics", "HOST:PORT", "Address to serve Prometheus metrics on, at /metrics.")
    ] = None,
    tls_config: TlsOption = None,
    acl_config: Annotated[
        str | None, option("--acl-config", "FILE", "Enable ACL 1.0 with this file, in the form of plain_acl.yml.")
    ] = None,
    engine: EngineOption = "auto",
    output: OutputOption = Output.text,
    broker_conf: ConfsOption = None,
) -> int:
    """Serve a store to RocketMQ clients as a broker does, with a name server of its own.

    --create makes a store of 5.5, unless --engine says otherwise; clients of 4.9 and later work with it.

    When it accepts requests it prints one line on stdout: "ready broker=HOST:PORT namesrv=HOST:PORT". Unmodified
    clients of 4.9 and 5.3 send and consume through that name server, and mqadmin works, too. Delays, retries and
    transactions run as in a broker. By default it listens on this machine only, and requires no authentication, unless
    --acl-config or aclEnable=true in the broker's properties enables ACL 1.0.

    --read-only serves a rescued store for consumers to drain: nothing below STORE is changed or locked, and the groups'
    offsets are kept in a CSV file beside the store, which group reset --from-csv accepts.

    Given several copies of a store, such as a master and its slaves, --read-only serves every message that is intact in
    any of them, once, at its queue offset. If two copies have different messages at one queue offset they are refused:
    salvage makes one store of them.

    --follow does the same with a store that a broker is still writing: new messages are served within a second, and
    nothing is locked or changed.

    --metrics serves Prometheus metrics under the names of the RocketMQ exporter; the ready line has its address.

    Acknowledged messages survive a killed process, and with flushDiskType=SYNC_FLUSH a power cut. SIGINT and SIGTERM
    end it cleanly, with exit code 0, and leave the store as a broker does.
    """
    from rmqtool.admin.keys import credentials
    from rmqtool.cli.framework.opening import chosen_release
    from rmqtool.cli.render.times import parse_time
    from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async
    from rmqtool.errors import BadValue
    from rmqtool.remoting.tls import PLAIN, server_tls
    from rmqtool.server.serve import ServeOptions

    store, conf = stores[0], broker_conf[0] if broker_conf else None
    copies: tuple[StoreLayout, ...] = ()
    if len(stores) > 1:
        if not read_only:
            raise BadValue("several copies of a store are only served with --read-only")
        copies = _rank(stores, broker_conf)
        store, conf = copies[0].root, copies[0].conf.path
    elif broker_conf and len(broker_conf) > 1:
        raise BadValue("--broker-conf: give one file for one STORE")
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
        broker_conf=conf,
        copies=copies,
        listen=None if listen is None else address_of(listen, "--listen"),
        namesrv=tuple(servers),
        namesrv_listen=address_of(namesrv_listen, "--namesrv-listen"),
        name=name,
        cluster=cluster,
        create=create,
        release=chosen_release(engine),
        read_only=read_only,
        follow=follow,
        offsets=offsets,
        metrics=None if metrics is None else address_of(metrics, "--metrics"),
        acl=acl_config,
        credentials=credentials(None),
        tls=PLAIN if tls_config is None else server_tls(tls_config),
    )
    end = None if until is None else parse_time(until)
    log_to_stderr()
    run_async(partial(_serve, store, options, end, output.value))
    return 0


def _rank(stores: list[str], confs: list[str] | None) -> "tuple[StoreLayout, ...]":
    """The copies of a store, the one whose history counts first."""
    from rmqtool.cli.framework.opening import open_copies
    from rmqtool.cli.render.progress import showing
    from rmqtool.cli.render.text import note
    from rmqtool.services.comparison.replicas import rank_copies

    layouts = open_copies(stores, confs, "not served")
    with showing("auto", streams=False):
        return tuple(rank_copies(layouts, lambda text: note(f"warning: {text}")))


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
