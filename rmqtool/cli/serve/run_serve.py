"""The command serve behind its options."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rmqtool.cli.framework.opening import chosen_release
from rmqtool.cli.render.progress import showing
from rmqtool.cli.render.times import parse_time
from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async, say_ready, until_told
from rmqtool.errors import BadValue
from rmqtool.remoting.tls import PLAIN, server_tls
from rmqtool.rules.releases import NEWEST
from rmqtool.server.serve import Served, ServeOptions


def run(
    store: str,
    broker_conf: str | None,
    *,
    create: bool,
    read_only: bool,
    follow: bool,
    offsets: str | None,
    listen: str | None,
    namesrv: str | None,
    namesrv_listen: str,
    name: str | None,
    cluster: str | None,
    until: str | None,
    tls_config: str | None,
    metrics: str | None,
    acl_config: str | None,
    engine: str,
    output: str,
) -> int:
    """Serve until a signal or the time comes."""
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
    run_async(_serve(store, options, end, output))
    return 0


async def _serve(store: str, options: ServeOptions, end: int | None, output: str) -> None:
    async with until_told() as told, AsyncExitStack() as stack:
        with showing("auto", streams=False):  # a store that is recovered first takes its time
            served = await stack.enter_async_context(Served(store, options))
        addresses = {"broker": served.broker_address, "namesrv": ";".join(served.name_servers)}
        say_ready(output, addresses | ({"metrics": served.metrics_address} if served.metrics_address else {}))
        async with _status(served):
            await _until(told, served, end)


@asynccontextmanager
async def _status(served: Served) -> AsyncIterator[None]:
    """Live status on a terminal; Rich is loaded for that alone."""
    if not sys.stderr.isatty():
        yield
        return
    from rmqtool.cli.serve.live_status import live_status

    async with live_status(served):
        yield


async def _until(told: asyncio.Event, served: Served, end: int | None) -> None:
    """Until a signal, the time, or something because of which it cannot go on."""
    waiting = [asyncio.create_task(told.wait()), asyncio.create_task(served.wait())]
    left = None if end is None else max(end / 1000 - time.time(), 0)
    done, others = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*done)
