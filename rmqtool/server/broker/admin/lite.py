"""What administrators ask about lite topics (5.5).

Source: broker.processor.LiteManagerProcessor, broker.metrics.LiteConsumerLagCalculator (5.5.0).
"""

from formats.model.topics import TopicConfig
from formats.remoting import lite as lt
from formats.remoting.codes import RequestCode as C
from formats.remoting.codes import ResponseCode
from formats.remoting.frame import Command
from formats.remoting.shapes import OffsetWrapper, TopicOffset
from formats.topics import LMQ_PREFIX
from rmqtool.rules.kinds import LiteGroup, is_lite, lite_expiration, lite_names
from rmqtool.rules.releases import V5_5
from rmqtool.server.broker.context.answers import Failed
from rmqtool.server.broker.context.broker_context import BrokerContext
from rmqtool.server.dispatch.table import Call, handles
from rmqtool.services.lite.service import LiteService, queue_names

_MOST = 10_000  # lite topics of a client in one answer


class LiteAdmin:
    """Requests about lite topics."""

    def __init__(self, context: BrokerContext, service: LiteService) -> None:
        self._context, self._service = context, service

    @handles(C.GET_BROKER_LITE_INFO, since=V5_5)
    def describe_broker(self, call: Call[None, None]) -> Command:
        """Request 200074."""
        context, service = self._context, self._service
        topics = {name for name, _id, _path in context.store.layout.each_queue_dir()}
        offsets = {(topic, group) for topic, group, _queue in context.state.offsets}
        body = lt.BrokerLiteInfo(
            store_type="default",
            max_lmq_num=service.settings.most_light_queues,
            current_lmq_num=self._light_queues(),
            lite_subscription_count=service.subscriptions.count,
            order_info_count=len(service.orders.table),
            cq_table_size=len(topics),
            offset_table_size=len(offsets),
            event_map_size=service.clients,
            topic_meta={name: lite_expiration(topic) for name, topic in context.state.topics.items() if is_lite(topic)},
            group_meta=self._groups_by_topic(),
        )
        return call.answer(body=body)

    @handles(C.GET_PARENT_TOPIC_INFO, since=V5_5)
    def describe_parent(self, call: Call[lt.GetParentTopic, None]) -> Command:
        """Request 200075."""
        topic = call.header.topic
        config = self._parent(topic)
        body = lt.ParentTopicInfo(
            topic=topic,
            ttl=lite_expiration(config),
            groups=self._groups_by_topic().get(topic),
            lmq_num=self._light_queues(),
            lite_topic_count=len(self._service.queues_of(topic)),
        )
        return call.answer(body=body)

    @handles(C.GET_LITE_TOPIC_INFO, since=V5_5)
    def describe_topic(self, call: Call[lt.GetLiteTopic, None]) -> Command:
        """Request 200076."""
        header, reading = call.header, self._context.reading
        parent = header.parent_topic or ""
        self._parent(parent)
        queue = next(iter(queue_names(parent, [header.lite_topic or ""])), "")
        end = self._service.end(queue)
        subscribers = self._service.subscriptions.subscribers(queue)
        body = lt.LiteTopicInfo(
            parent_topic=parent,
            lite_topic=header.lite_topic,
            subscriber=[
                lt.ClientGroup(client, group)
                for group, clients in subscribers.items()
                for client in (["*"] if self._service.subscriptions.kind(group).wildcard else clients)
            ],
            topic_offset=TopicOffset(
                min_offset=max(reading.min_offset(queue, 0), 0) if end else 0,
                max_offset=end,
                last_update_timestamp=reading.store_time(queue, 0, end - 1) if end else 0,
            ),
            sharding_to_broker=True,
        )
        return call.answer(body=body)

    @handles(C.GET_LITE_CLIENT_INFO, since=V5_5)
    def describe_client(self, call: Call[lt.GetLiteClient, None]) -> Command:
        """Request 200077."""
        header = call.header
        parent, group, client = header.parent_topic or "", header.group or "", header.client_id or ""
        self._parent(parent)
        if self._kind(group).topic != parent:
            raise Failed(ResponseCode.INVALID_PARAMETER, f"Subscription [{group}]-[{parent}] not match.")
        subscription = self._service.subscriptions.of(client)
        queues = None if subscription is None else list(subscription.queues)
        body = lt.LiteClientInfo(
            parent_topic=parent,
            group=group,
            client_id=header.client_id,
            last_access_time=self._service.asked(client),
            last_consume_time=0,
            lite_topic_count=-1 if queues is None else len(queues),
            lite_topic_set=None if queues is None else queues[: min(header.max_count, _MOST)],
        )
        return call.answer(body=body)

    @handles(C.GET_LITE_GROUP_INFO, since=V5_5)
    def describe_group(self, call: Call[lt.GetLiteGroup, None]) -> Command:
        """Request 200078."""
        header, group = call.header, call.header.group
        topic = self._lite_group(group)
        body = lt.LiteGroupInfo(group=group, parent_topic=topic, lite_topic=header.lite_topic)
        if header.lite_topic:
            (queue,) = queue_names(topic, [header.lite_topic])
            self._describe_progress(body, group, queue)
        else:
            if header.top_k < 1:
                remark = "java.lang.IllegalArgumentException, java.base/java.util.PriorityQueue.<init>"
                raise Failed(ResponseCode.SYSTEM_ERROR, remark)
            lags = sorted(self._lags(group), key=lambda lag: -lag.lag_count)
            body.total_lag_count = sum(lag.lag_count for lag in lags)
            body.lag_count_top_k = lags[: header.top_k]
            body.lag_timestamp_top_k = []
        return call.answer(body=body)

    @handles(C.TRIGGER_LITE_DISPATCH, since=V5_5)
    def dispatch(self, call: Call[lt.TriggerLiteDispatch, None]) -> Command:
        """Request 200079."""
        group = call.header.group
        self._lite_group(group)
        if call.header.client_id:
            self._service.note_client(call.header.client_id, group)
        else:
            self._service.note_group(group)
        return call.answer()

    # -- parts --------------------------------------------------------------------------------------------------------

    def _describe_progress(self, body: lt.LiteGroupInfo, group: str, queue: str) -> None:
        end, offset, reading = self._service.end(queue), self._service.offset(group, queue), self._context.reading
        if not end:
            body.total_lag_count = -1
        elif offset >= 0:
            body.total_lag_count = end - offset
            body.earliest_unconsumed_timestamp = reading.store_time(queue, 0, offset)
            before = reading.store_time(queue, 0, offset - 1) if offset else 0
            body.lite_topic_offset_wrapper = OffsetWrapper(end, offset, before, pull_offset=0)

    def _lags(self, group: str) -> list[lt.LiteLag]:
        """The lite topics in which a group has begun, and has messages left."""
        lags = []
        for queue, name, _queue_id in list(self._context.state.offsets):
            if name == group and (names := lite_names(queue)) is not None and self._service.lag(group, queue) > 0:
                first = self._context.reading.store_time(queue, 0, self._service.offset(group, queue))
                lags.append(
                    lt.LiteLag(
                        lite_topic=names[1],
                        lag_count=self._service.lag(group, queue),
                        earliest_unconsumed_timestamp=first,
                    )
                )
        return lags

    def _parent(self, topic: str) -> TopicConfig:
        config = self._context.state.topic(topic)
        if config is None:
            raise Failed(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{topic}] not exist.")
        if not is_lite(config):
            raise Failed(ResponseCode.INVALID_PARAMETER, f"Topic [{topic}] type not match.")
        return config

    def _kind(self, group: str) -> LiteGroup:
        if self._context.state.ensure_group(group) is None:
            raise Failed(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{group}] not exist.")
        return self._service.subscriptions.kind(group)

    def _lite_group(self, group: str) -> str:
        topic = self._kind(group).topic
        if not topic:
            raise Failed(ResponseCode.INVALID_PARAMETER, f"Group [{group}] is not a LITE group.")
        return topic

    def _light_queues(self) -> int:
        return sum(1 for _queue in self._context.store.layout.each_queue_dir(prefix=LMQ_PREFIX))

    def _groups_by_topic(self) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name, config in self._context.state.groups.items():
            if (topic := LiteGroup.of(config).topic) is not None:
                groups.setdefault(topic, []).append(name)
        return groups
