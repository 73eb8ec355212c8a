"""How much cold data groups may read: flow control of 5.x (``coldDataFlowControlEnable``)."""

from collections.abc import Mapping
from dataclasses import dataclass

from formats.errors import BadText
from formats.fastjson.dialects import BODY
from formats.fastjson.read import loads
from formats.fastjson.values import Value
from formats.remoting.codes import RequestCode as C
from rmqtool.admin.live.questions import Node, Questions, Warn, ask
from rmqtool.admin.target import Target
from rmqtool.contract import PlainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdGroup(PlainRow):
    """What a group has read of cold data on one broker, in bytes, and how much it may."""

    group: str
    threshold: int | None  # its own; None: that of the broker holds
    defaultThreshold: int | None
    coldAcc: int | None  # in the present period; None: it has not read any
    lastColdReadTimestamp: int | None  # ms
    brokerName: str


@dataclass(frozen=True)
class ColdTables:
    """The answer of one broker."""

    thresholds: Mapping[str, int]
    read: Mapping[str, tuple[int, int | None]]  # bytes and time (ms) by group
    default: int | None


def list_cold_groups(target: Target, warn: Warn) -> list[ColdGroup]:
    """Groups with a threshold of their own, and those that have read cold data; by group and broker.

    Raises:
        ClientError, RemotingError: no broker answers.
    """

    async def work(questions: Questions) -> list[ColdGroup]:
        tables = await questions.tables(await questions.masters(), lambda node: fetch_cold_tables(questions, node))
        rows = [
            ColdGroup(
                group=group,
                threshold=table.thresholds.get(group),
                defaultThreshold=table.default,
                coldAcc=table.read[group][0] if group in table.read else None,
                lastColdReadTimestamp=table.read[group][1] if group in table.read else None,
                brokerName=node.name,
            )
            for node, table in tables.items()
            for group in {**table.thresholds, **table.read}
        ]
        return sorted(rows, key=lambda row: (row.group, row.brokerName))

    return ask(target, warn, work)


async def fetch_cold_tables(questions: Questions, node: Node) -> ColdTables:
    """The thresholds of one broker.

    Raises:
        Unanswered: it does not answer; one of 4.9 does not know the request.
    """
    tables = await questions.fetch(node, C.GET_COLD_DATA_FLOW_CTR_INFO, _read, what="its thresholds are")
    assert tables is not None  # nothing is absent
    return tables


def _read(data: bytes) -> ColdTables:
    """Parse an answer (ColdDataCgCtrService.getColdDataFlowCtrInfo).

    Raises:
        BadText: it is something else.
    """
    content = loads(data, BODY, cycles=False)
    if not isinstance(content, dict):
        raise BadText(0, "not an object")
    read = {}
    for group, state in _table(content.get("runtimeTable")).items():
        table = state if isinstance(state, dict) else {"coldAcc": state}
        last = table.get("lastColdReadTimeMills")
        read[group] = (_whole(table.get("coldAcc")) or 0, _whole(last))
    thresholds = {group: _whole(value) or 0 for group, value in _table(content.get("configTable")).items()}
    return ColdTables(thresholds, read, _whole(content.get("cgColdReadThreshold")))


def _table(value: Value) -> dict[str, Value]:
    return {str(name): item for name, item in value.items()} if isinstance(value, dict) else {}


def _whole(value: Value) -> int | None:
    return value if type(value) is int else None
