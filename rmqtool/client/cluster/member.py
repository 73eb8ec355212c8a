"""Shared by producers and consumers: a group, and an own or shared cluster."""

from dataclasses import replace
from typing import Self

from formats.primitives import address_text
from rmqtool.client.cluster.cluster import ClientOptions, Cluster
from rmqtool.client.cluster.identity import local_address
from rmqtool.client.cluster.namespaces import with_namespace
from rmqtool.rules.sending import check_group


class GroupMember:
    """A member of a group. Use as an asynchronous context manager.

    Args:
        client: addresses of name servers, options of a client, or a shared cluster.
        fixed_id: give a client without an id ``IP@DEFAULT``, as Java does so that it finds its offsets again.
        namespaced: put the client's namespace, if any, before the group.

    Attributes:
        cluster: the client's view of its cluster.
        group: its name at brokers.

    Raises:
        ValueError: an invalid group name.
        NotReached: no name server is given.
    """

    def __init__(
        self, client: str | ClientOptions | Cluster, group: str, *, fixed_id: bool = False, namespaced: bool = True
    ) -> None:
        check_group(group)
        if isinstance(client, str):
            client = ClientOptions(namesrv=client)
        if isinstance(client, ClientOptions) and client.client_id is None and fixed_id:
            client = replace(client, client_id=f"{address_text(local_address())}@DEFAULT")
        self._shared = isinstance(client, Cluster)
        self.cluster = client if isinstance(client, Cluster) else Cluster(client)
        self._namespace = self.cluster.options.namespace
        self.group = with_namespace(self._namespace, group) if namespaced else group
        self._closed = False

    async def __aenter__(self) -> Self:
        try:
            if not self._shared:
                await self.cluster.__aenter__()
            await self._join()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group, and close own connections."""
        if self._closed:
            return
        self._closed = True
        await self._leave()
        if not self._shared:
            await self.cluster.close()

    async def _join(self) -> None:
        """Begin to work."""

    async def _leave(self) -> None:
        """Stop, before connections are closed."""
