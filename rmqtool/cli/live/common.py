"""What commands that talk to a live cluster have in common."""

from rmqtool.cli.serve.running import address_of
from rmqtool.client.cluster.cluster import ClientOptions
from rmqtool.client.cluster.name_servers import addresses_of
from rmqtool.errors import BadValue


def client_options(namesrv: str, engine: str = "5.3") -> ClientOptions:
    """Options of a client.

    Raises:
        BadValue: no addresses, or no engine that is known.
    """
    if engine not in ("4.9", "5.3"):
        raise BadValue(f"--engine {engine}: give 4.9 or 5.3")
    addresses = addresses_of(namesrv)
    if not addresses:
        raise BadValue("--namesrv: give HOST:PORT, or several of them with semicolons between")
    for address in addresses:
        address_of(address, "--namesrv")
    return ClientOptions(namesrv=namesrv, engine=engine)
