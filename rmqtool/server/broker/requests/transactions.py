"""Transactions: what producers say of theirs, and what they are asked.

Source: broker.processor.EndTransactionProcessor, broker.transaction.AbstractTransactionalMessageCheckListener
(4.9.8, 5.3.3); remoting-protocol 9.3, message-services 11.
"""

import logging

from formats.message.build import changed
from formats.message.ids import offset_id
from formats.message.properties import UNIQ_KEY, build
from formats.remoting import headers as h
from formats.remoting.codes import RequestCode, ResponseCode
from formats.remoting.fields import to_fields
from formats.remoting.frame import Command
from rmqtool.errors import RmqError
from rmqtool.remoting.connection import Connection
from rmqtool.rules.sending import Rejected
from rmqtool.server.broker.known.answers import Failed, answer, header_of
from rmqtool.server.broker.known.core import Core
from rmqtool.services.waiting.transaction_check import TransactionService
from rmqtool.services.waiting.transaction_rules import CheckRequest, Decision

log = logging.getLogger(__name__)

_COMMIT, _ROLLBACK = 8, 12


class Transactions:
    """The jobs of a broker around half messages."""

    def __init__(self, core: Core, service: TransactionService) -> None:
        self._core, self._service = core, service

    def end(self, connection: Connection, request: Command) -> Command | None:
        """Request 37. One that says nothing gets no answer."""
        header = header_of(h.EndTransaction, request)
        if header.commit_or_rollback not in (_COMMIT, _ROLLBACK):
            return None
        if self._core.settings.read_only:
            raise Failed(ResponseCode.NO_PERMISSION, f"the broker[{self._core.settings.address}] is read-only")
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
            log.warning("%s: a transaction cannot be ended: %s", connection.peer, err)
            raise Failed(err.code, str(err)) from None
        except (OSError, RmqError) as err:
            words = "a transaction cannot be ended"
            raise self._core.failed(words, err, ResponseCode.SYSTEM_ERROR) from None
        if result is not None:
            self._core.arrived(result.topic, result.queue_id)
        return answer(request)

    def ask(self, asked: CheckRequest) -> Decision:
        """Ask a producer of the group; its answer comes as a request of its own."""
        client = self._core.clients.a_producer(asked.producer_group or "")
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
            topic=record.topic.decode("utf-8", "replace") if self._core.release.is_5 else None,
        )
        properties = build(
            {**asked.properties, "WAIT": "false"}, trailing_separator=self._core.release.trailing_separator
        )
        body = changed(record, properties=properties)
        client.connection.tell(Command(RequestCode.CHECK_TRANSACTION_STATE, fields=to_fields(header), body=body))
        return Decision.UNKNOWN
