"""The command serve behind its options."""

import asyncio
import time

from rmqtool.cli.look.run_query import engine_of
from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async, say_ready, until_told
from rmqtool.cli.shell.times import parse_time
from rmqtool.errors import BadValue
from rmqtool.remoting.tls import PLAIN, server_tls
from rmqtool.server.serve import Served, ServeOptions


def run(
    store: str,
    broker_conf: str | None,
    *,
    create: bool,
    read_only: bool,
    offsets: str | None,
    listen: str | None,
    namesrv: str | None,
    namesrv_listen: str,
    name: str | None,
    cluster: str | None,
    until: str | None,
    tls_config: str | None,
    metrics: str | None,
    engine: str,
    output: str,
) -> int:
    """Serve until a signal or the time comes."""
    if read_only and create:
        raise BadValue("--read-only cannot be given with --create: a new store has nothing to read")
    if offsets is not None and not read_only:
        raise BadValue("--offsets needs --read-only: otherwise offsets are kept in the store")
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
        engine=engine_of(engine),
        read_only=read_only,
        offsets=offsets,
        metrics=None if metrics is None else address_of(metrics, "--metrics"),
        tls=PLAIN if tls_config is None else server_tls(tls_config),
    )
    end = None if until is None else parse_time(until)
    log_to_stderr()
    run_async(_serve(store, options, end, output))
    return 0


async def _serve(store: str, options: ServeOptions, end: int | None, output: str) -> None:
    async with until_told() as told, Served(store, options) as served:
        addresses = {"broker": served.broker_address, "namesrv": ";".join(served.name_servers)}
        say_ready(output, addresses | ({"metrics": served.metrics_address} if served.metrics_address else {}))
        waiting = [asyncio.create_task(told.wait()), asyncio.create_task(served.wait())]
        left = None if end is None else max(end / 1000 - time.time(), 0)
        done, others = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*done)
