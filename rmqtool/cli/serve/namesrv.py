"""The command ``namesrv``: a name server."""

from typing import Annotated

from rmqtool.cli.framework.app import command
from rmqtool.cli.framework.options import Output, OutputOption, TlsOption, option


@command("namesrv", "rmqtool namesrv --listen 127.0.0.1:9876")
def namesrv(
    listen: Annotated[
        str, option("--listen", "HOST:PORT", "Address to listen on; port 0 lets the system choose.")
    ] = "127.0.0.1:9876",
    kv_config: Annotated[
        str | None,
        option("--kv-config", "FILE", "Keep the KV configuration in this file, in the form of kvConfig.json."),
    ] = None,
    tls_config: TlsOption = None,
    output: OutputOption = Output.text,
) -> int:
    """Run a name server, which brokers register with and clients ask for routes.

    It answers the requests that brokers, clients and mqadmin of 4.9 and 5.3 send to a name server. When it accepts
    requests it prints one line on stdout, "ready namesrv=HOST:PORT", or the same as JSON; events are logged on stderr.
    Routes are kept in memory, because brokers repeat them every 30 seconds; so are settings changed by mqadmin and,
    without --kv-config, the KV configuration (ordered topics). As with every name server, anyone who reaches the port
    can change all of it, so by default it listens on this machine only. SIGINT and SIGTERM end it, with exit code 0.
    """
    from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async, say_ready, until_stopped
    from rmqtool.remoting.tls import PLAIN, server_tls
    from rmqtool.server.namesrv.server import NameServer

    address = address_of(listen, "--listen")
    tls = PLAIN if tls_config is None else server_tls(tls_config)
    log_to_stderr()

    async def run() -> None:
        async with until_stopped() as stop, NameServer(address, kv_config=kv_config, tls=tls) as server:
            say_ready(output.value, {"namesrv": server.address})
            await stop.wait()

    run_async(run)
    return 0
