"""Transactions: outcomes from producers, and checks sent to them.

Source: broker.processor.EndTransactionProcessor, broker.transaction.AbstractTransactionalMessageCheckListener
(4.9.8, 5.3.3); remoting-protocol 9.3, message-services 11.
"""

import logging

from formats.message.build import rebuild
from formats.message.ids import offset_id
from formats.message.properties import UNIQ_KEY, WAIT, build
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.codes import RequestCode as C
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.rules.releases import Release
from rmqtool.rules.sending import Rejected
from rmqtool.server.access import rights
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.broker.context.clients import Clients
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.transactions.rules import CheckRequest, Decision
from rmqtool.services.transactions.service import TransactionService

log = logging.getLogger(__name__)

_COMMIT, _ROLLBACK = 8, 12


class TransactionRequests:
    """Requests that end transactions."""

    def __init__(self, context: BrokerContext, service: TransactionService) -> None:
        self._context, self._service = context, service

    @handles(C.END_TRANSACTION, right=rights.end_transaction)
    def end(self, call: Call[h.EndTransaction, None]) -> Command | None:
        """Request 37. An unknown outcome gets no answer."""
        header = call.header
        if header.commit_or_rollback not in (_COMMIT, _ROLLBACK):
            return None
        self._context.check_writable()
        decision = Decision.COMMIT if header.commit_or_rollback == _COMMIT else Decision.ROLLBACK
        try:
            result = self._service.end(
                header.commit_log_offset,
                header.tran_state_table_offset,
                header.producer_group,
                decision,
                from_check=bool(header.from_transaction_check),
            )
        except Rejected as err:
            log.warning("%s: a transaction cannot be ended: %s", call.connection.peer, err)
            raise Failed(err.code, str(err)) from None
        except (OSError, RmqError) as err:
            remark = "a transaction cannot be ended"
            raise self._context.failure(remark, err, ResponseCode.SYSTEM_ERROR) from None
        if result is not None:
            self._context.arrivals.publish(result.topic, result.queue_id)
        return call.answer()


def ask_producer(clients: Clients, release: Release, asked: CheckRequest) -> Decision:
    """Ask a producer of the group for the outcome; its answer comes as a request of its own."""
    client = clients.pick_producer(asked.producer_group or "")
    if client is None:
        log.warning("nobody of producer group %s is connected to be asked about %s", *asked[2:4])
        return Decision.UNKNOWN
    record = asked.record
    header = h.CheckTransaction(
        tran_state_table_offset=record.queue_offset,
        commit_log_offset=record.physical_offset,
        msg_id=asked.properties.get(UNIQ_KEY),
        transaction_id=asked.properties.get(UNIQ_KEY),
        offset_msg_id=offset_id(record.store_address, record.store_port, record.physical_offset),
        topic=record.topic.decode("utf-8", "replace") if release.is_5 else None,
    )
    properties = build({**asked.properties, WAIT: "false"}, trailing_separator=release.trailing_separator)
    body = rebuild(record, properties=properties)
    client.connection.tell(Command(RequestCode.CHECK_TRANSACTION_STATE, fields=to_fields(header), body=body))
    return Decision.UNKNOWN
