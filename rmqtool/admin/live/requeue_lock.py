"""Keep two runs of ``dlq requeue`` from giving the same dead letters back at once, from whatever machines they run.

A broker locks a queue for one client of a group, as for consumers in order: here the group's dead-letter queue, for a
group of this tool alone. Groups that consume are not affected. A lock expires a minute after it was last renewed.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from formats.fastjson.declare import body_of
from formats.remoting import headers as h
from formats.remoting.bodies import LockRequest, LockResponse
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.shapes import MessageQueue
from formats.topics import DLQ_PREFIX
from rmqtool.admin.live.questions import TIMEOUT, Node, Warn
from rmqtool.admin.live.queues import LiveQueues
from rmqtool.client.cluster.answers import body_from
from rmqtool.client.cluster.errors import ClientError
from rmqtool.remoting.errors import RemotingError

_OWNER = "rmqtool-requeue"
_LIFE, _RENEWED, _PAUSE = 60.0, 20.0, 1.0  # s


class RequeueLock:
    """A context manager: the dead letters of a group belong to this run meanwhile.

    Args:
        stop: true ends waiting for another run, without a lock.
        say: called if another run is waited for, and with each broker that locks nothing.

    Raises:
        ClientError: another run has them, for longer than the lock of a killed one lasts; or a broker does not answer.
    """

    def __init__(self, queues: LiveQueues, group: str, stop: Callable[[], bool], say: Warn) -> None:
        topic = DLQ_PREFIX + group
        self._queues, self._group, self._stop, self._say = queues, group, stop, say
        self._places = [(node, MessageQueue(topic, node.name, 0)) for node in queues.nodes if queues.has(node, topic)]
        self._since = 0.0

    def __enter__(self) -> Self:
        end, waiting = time.monotonic() + _LIFE + _PAUSE, False
        while not self._lock_all() and not self._stop():
            if time.monotonic() > end:
                self.__exit__(None, None, None)
                raise self._busy_error()
            if not waiting:
                self._say(f"another run gives dead letters of {self._group} back, or was killed: waiting for its lock")
                waiting = True
            time.sleep(_PAUSE)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for node, queue in self._places:
            try:
                self._ask(node, queue, C.UNLOCK_BATCH_MQ)
            except (ClientError, RemotingError):
                continue  # it expires

    def renew(self) -> None:
        """Renew the locks if it is time.

        Raises:
            ClientError: another run has them now, or a broker does not answer.
        """
        if time.monotonic() - self._since > _RENEWED and not self._lock_all():
            raise self._busy_error()

    def _busy_error(self) -> ClientError:
        return ClientError(f"another run gives dead letters of {self._group} back: nothing is given back by this one")

    def _lock_all(self) -> bool:
        began = time.monotonic()
        locked = all(self._lock(node, queue) for node, queue in self._places)  # in order: no two wait for each other
        self._since = began
        return locked

    def _lock(self, node: Node, queue: MessageQueue) -> bool:
        try:
            body = self._ask(node, queue, C.LOCK_BATCH_MQ)
        except RemotingError as err:
            raise ClientError(f"{err}: nothing is given back") from err
        return body is None or queue in body.lock_ok_mq_set

    def _ask(self, node: Node, queue: MessageQueue, code: C) -> LockResponse | None:
        """None if the broker permits no locks to this user."""
        cluster = self._queues.questions.cluster
        request = cluster.request(code, h.Empty(), body_of(LockRequest(_OWNER, cluster.client_id, [queue])))
        response = self._queues.run(cluster.call(node.address, request, TIMEOUT))
        if response.code != ResponseCode.SUCCESS:
            if code == C.LOCK_BATCH_MQ and self._since == 0.0:
                self._say(
                    f"broker {node.name} locks nothing ({response.remark}): let no other run work at the same time"
                )
            return None
        return body_from(LockResponse, response, node.address) if code == C.LOCK_BATCH_MQ else None
