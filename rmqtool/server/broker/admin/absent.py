"""Requests of 5.x about features that this broker lacks; a single real broker answers the same.

It has no slaves and no controller; topics, groups and offsets are in files, not in RocksDB; there is no ACL 2.0 and no
flow control of cold data (``coldDataFlowControlEnable``).

Source: broker.processor.AdminBrokerProcessor, broker.coldctr.ColdDataCgCtrService (5.3.3).
"""

import logging

from formats.config.properties import parse_properties
from formats.message.read import java_int
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.rules.releases import V5_3, V5_5
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.open_store.broker_state import setting

log = logging.getLogger(__name__)

_USERS = tuple(map(C, range(C.AUTH_CREATE_USER, C.AUTH_LIST_ACL + 1)))
_BY_NAME = (C.AUTH_CREATE_USER, C.AUTH_UPDATE_USER, C.AUTH_GET_USER)
_RULES = (C.AUTH_GET_ACL, C.AUTH_LIST_ACL)
_NO_USERS = "An system error occurred, please try again later."
_NO_PROVIDER = "java.lang.IllegalStateException: The authenticationMetadataProvider is not configured."
_TIMER_ENGINE, _ROCKSDB_TIMERS, _WHEEL = "E_T", "R", "F"  # MessageConst
_IN_PROGRESS = 2  # of common.CheckRocksdbCqWriteResult
_MOST_GROUPS, _LONGEST = 10_000, 255  # whose thresholds are kept


class Absent:
    """Requests about missing features of 5.x."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._thresholds: dict[str, int] = {}  # thresholds of cold data by group; they have no effect

    @handles(C.GET_BROKER_HA_STATUS, since=V5_3)
    def show_slaves(self, call: Call[None, None]) -> Command:
        """Request 907."""
        return call.answer(body=a.HaStatus(master_commit_log_max_offset=self._context.reading.message_end))

    @handles(C.RESET_MASTER_FLUSH_OFFSET, since=V5_3)
    def reset_flush_offset(self, call: Call[None, None]) -> Command:
        """Request 908: a master has no offset of another master."""
        return call.answer()

    @handles(C.GET_BROKER_EPOCH_CACHE, since=V5_3)
    def list_epochs(self, call: Call[None, None]) -> Command:
        """Request 1007."""
        raise Failed(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")

    @handles(C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, since=V5_3)
    def check_rocksdb(self, call: Call[None, None]) -> Command:
        """Request 354: a broker begins to compare, and logs the outcome."""
        log.info("%s: queues are in files, not in RocksDB: there is nothing to compare", call.connection.peer)
        return call.answer(body=a.RocksCheck(check_status=_IN_PROGRESS))

    @handles(C.EXPORT_ROCKSDB_CONFIG_TO_JSON, since=V5_3)
    def export_rocksdb(self, call: Call[None, None]) -> Command:
        """Request 355: the tables are in JSON files already."""
        return call.answer(remark="export done.")

    @handles(C.SWITCH_TIMER_ENGINE, since=V5_5)
    def switch_timer(self, call: Call[None, None]) -> Command:
        """Request 5001: timers are in the wheel's files, and not in RocksDB (``timerRocksDBEnable``)."""
        fields = call.request.fields
        if not self._context.store.layout.conf.flag("timerWheelEnable", True):
            raise Failed(ResponseCode.INVALID_PARAMETER, "broker timerWheelEnable is false")
        if not fields:
            raise Failed(ResponseCode.INVALID_PARAMETER, "param error, extFields is null")
        engine = fields.get(_TIMER_ENGINE)
        if engine == _ROCKSDB_TIMERS:
            remark = "timerRocksDBEnable must be configured true when broker start"
            raise Failed(ResponseCode.INVALID_PARAMETER, remark)
        if engine != _WHEEL:
            raise Failed(ResponseCode.INVALID_PARAMETER, "param error")
        return call.answer(remark="switch timer engine success")

    @handles(*_USERS, since=V5_3)
    def refuse_users(self, call: Call[None, None]) -> Command:
        """Requests 3001 to 3010, of a broker that has no ``authenticationMetadataProvider``."""
        if call.request.code in _BY_NAME and not ((call.request.fields or {}).get("username") or "").strip():
            raise Failed(ResponseCode.INVALID_PARAMETER, "The username is blank")
        raise Failed(ResponseCode.SYSTEM_ERROR, _NO_PROVIDER if call.request.code in _RULES else _NO_USERS)

    # -- cold data ----------------------------------------------------------------------------------------------------

    @handles(C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, since=V5_3)
    def set_thresholds(self, call: Call[None, bytes]) -> Command:
        """Request 2001."""
        for group, text in parse_properties(call.body).items():
            number = java_int(text, 64)
            if number is not None and len(self._thresholds) < _MOST_GROUPS and len(group) <= _LONGEST:
                self._thresholds[group] = number
                log.info("%s: cold data of %s is counted nowhere, its threshold is kept", call.connection.peer, group)
        return call.answer()

    @handles(C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, since=V5_3)
    def remove_threshold(self, call: Call[None, bytes]) -> Command:
        """Request 2002."""
        self._thresholds.pop(call.body.decode("utf-8", "replace"), None)
        return call.answer()

    @handles(C.GET_COLD_DATA_FLOW_CTR_INFO, since=V5_3)
    def list_thresholds(self, call: Call[None, None]) -> Command:
        """Request 2003."""
        conf = self._context.store.layout.conf
        body = a.ColdData(
            config_table=dict(self._thresholds),
            cg_cold_read_threshold=setting(conf, "cgColdReadThreshold", 3 << 20),
            global_cold_read_threshold=setting(conf, "globalColdReadThreshold", 100 << 20),
        )
        return call.answer(body=body)
