"""The slaves of each master, as it sees them."""

from dataclasses import dataclass

from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from rmqtool.admin.live.questions import Node, Questions, Warn, ask, body
from rmqtool.admin.target import Target
from rmqtool.contract import PlainRow

_NO_REQUEST = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveProgress(PlainRow):
    """A slave that is connected to its master. Offsets are bytes of the log."""

    cluster: str
    brokerName: str
    masterAddress: str
    masterMaxOffset: int
    slaveAddress: str | None  # of its connection; None where a master has no slave
    slaveAckOffset: int | None
    diff: int | None  # bytes that it has not acknowledged
    inSync: bool | None
    transferredByteInSecond: int | None


def list_replicas(target: Target, warn: Warn) -> list[SlaveProgress]:
    """The slaves of every master, and a row for a master without one; by broker and address.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[SlaveProgress]:
        async def fetch(node: Node) -> a.HaStatus | None:
            return await questions.fetch(
                node, C.GET_BROKER_HA_STATUS, body(a.HaStatus), what="its slaves are", absent=_NO_REQUEST
            )

        masters = [node for node in await questions.nodes() if node.is_master]
        answers = await questions.tables(masters, fetch)
        old = [node.name for node, status in answers.items() if status is None]
        if old:
            warn(f"{', '.join(sorted(old))}: brokers of 4.9 do not report their slaves; cluster list has the distance")
        return [
            row
            for node, status in sorted(answers.items())
            if status is not None
            for row in _rows(node, status)
        ]  # fmt: skip

    return ask(target, warn, work)


def _rows(node: Node, status: a.HaStatus) -> list[SlaveProgress]:
    end = status.master_commit_log_max_offset
    slaves: list[a.HaConnection | None] = [*sorted(status.ha_connection_info, key=lambda one: one.addr)]
    return [
        SlaveProgress(
            cluster=node.cluster,
            brokerName=node.name,
            masterAddress=node.address,
            masterMaxOffset=end,
            slaveAddress=slave.addr if slave is not None else None,
            slaveAckOffset=slave.slave_ack_offset if slave is not None else None,
            diff=slave.diff if slave is not None else None,
            inSync=slave.in_sync if slave is not None else None,
            transferredByteInSecond=slave.transferred_byte_in_second if slave is not None else None,
        )
        for slave in slaves or [None]
    ]
