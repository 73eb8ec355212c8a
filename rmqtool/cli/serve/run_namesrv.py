"""The command namesrv behind its options."""

from rmqtool.cli.serve.running import address_of, log_to_stderr, run_async, say_ready, until_told
from rmqtool.remoting.tls import PLAIN, ServerTls, server_tls
from rmqtool.server.namesrv.server import NameServer


def run(listen: str, kv_config: str | None, tls_config: str | None, output: str) -> int:
    """Serve until a signal comes."""
    address = address_of(listen, "--listen")
    tls = PLAIN if tls_config is None else server_tls(tls_config)
    log_to_stderr()
    run_async(_serve(address, kv_config, tls, output))
    return 0


async def _serve(listen: tuple[str, int], kv_config: str | None, tls: ServerTls, output: str) -> None:
    async with until_told() as told, NameServer(listen, kv_config=kv_config, tls=tls) as server:
        say_ready(output, {"namesrv": server.address})
        await told.wait()
