"""What a broker of 5.x says of parts that this one does not have: a broker alone says the same of them.

There are no slaves and no controller; topics, groups and offsets are in files, not in RocksDB; there are no users and
rules of ACL 2.0; and cold data is not held back, which takes ``coldDataFlowControlEnable``.

Source: broker.processor.AdminBrokerProcessor, broker.coldctr.ColdDataCgCtrService (5.3.3).
"""

import logging
from collections.abc import Callable

from formats.config.properties import parse_properties
from formats.message.read import java_int
from formats.remoting import admin as a
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from rmqtool.remoting.connection import Connection
from rmqtool.server.broker.context.answers import Failed, answer
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.services.opened.broker_state import setting

log = logging.getLogger(__name__)

Handle = Callable[[Connection, Command], Command]
_USERS = range(C.AUTH_CREATE_USER, C.AUTH_LIST_ACL + 1)
_BY_NAME = (C.AUTH_CREATE_USER, C.AUTH_UPDATE_USER, C.AUTH_GET_USER)
_RULES = (C.AUTH_GET_ACL, C.AUTH_LIST_ACL)
_NO_USERS = "An system error occurred, please try again later."
_NO_PROVIDER = "java.lang.IllegalStateException: The authenticationMetadataProvider is not configured."
_IN_PROGRESS = 2  # of common.CheckRocksdbCqWriteResult
_MOST_GROUPS, _LONGEST = 10_000, 255  # whose thresholds are kept


class Absent:
    """Requests about parts of 5.x that are not here."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._thresholds: dict[str, int] = {}  # bytes of cold data by group; nobody is held back by them

    def handlers(self) -> dict[int, Handle]:
        """By request code."""
        return {
            C.GET_BROKER_HA_STATUS: self.slaves,
            C.RESET_MASTER_FLUSH_OFFSET: self.nothing,
            C.GET_BROKER_EPOCH_CACHE: self.epochs,
            C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self.check_rocksdb,
            C.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.export_rocksdb,
            C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.set_thresholds,
            C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove_threshold,
            C.GET_COLD_DATA_FLOW_CTR_INFO: self.thresholds,
            **dict.fromkeys(_USERS, self.no_users),
        }

    def slaves(self, _connection: Connection, request: Command) -> Command:
        """Request 907."""
        return answer(request, body=a.HaStatus(master_commit_log_max_offset=self._context.reading.end))

    def nothing(self, _connection: Connection, request: Command) -> Command:
        """Request 908: a master has no offset of another master."""
        return answer(request)

    def epochs(self, _connection: Connection, request: Command) -> Command:
        """Request 1007."""
        raise Failed(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")

    def check_rocksdb(self, connection: Connection, request: Command) -> Command:
        """Request 354: a broker begins to compare, and tells its log what came of it."""
        log.info("%s: queues are in files, not in RocksDB: there is nothing to compare", connection.peer)
        return answer(request, body=a.RocksCheck(check_status=_IN_PROGRESS))

    def export_rocksdb(self, _connection: Connection, request: Command) -> Command:
        """Request 355: the tables are in JSON files already."""
        return answer(request, remark="export done.")

    def no_users(self, _connection: Connection, request: Command) -> Command:
        """Requests 3001 to 3010, of a broker that has no ``authenticationMetadataProvider``."""
        if request.code in _BY_NAME and not ((request.fields or {}).get("username") or "").strip():
            raise Failed(ResponseCode.INVALID_PARAMETER, "The username is blank")
        raise Failed(ResponseCode.SYSTEM_ERROR, _NO_PROVIDER if request.code in _RULES else _NO_USERS)

    # -- cold data ----------------------------------------------------------------------------------------------------

    def set_thresholds(self, connection: Connection, request: Command) -> Command:
        """Request 2001."""
        for group, text in parse_properties(request.body).items():
            number = java_int(text, 64)
            if number is not None and len(self._thresholds) < _MOST_GROUPS and len(group) <= _LONGEST:
                self._thresholds[group] = number
                log.info("%s: cold data of %s is counted nowhere, its threshold is kept", connection.peer, group)
        return answer(request)

    def remove_threshold(self, _connection: Connection, request: Command) -> Command:
        """Request 2002."""
        self._thresholds.pop(request.body.decode("utf-8", "replace"), None)
        return answer(request)

    def thresholds(self, _connection: Connection, request: Command) -> Command:
        """Request 2003."""
        conf = self._context.store.layout.conf
        body = a.ColdData(
            config_table=dict(self._thresholds),
            cg_cold_read_threshold=setting(conf, "cgColdReadThreshold", 3 << 20),
            global_cold_read_threshold=setting(conf, "globalColdReadThreshold", 100 << 20),
        )
        return answer(request, body=body)
