"""Answers of a broker: refusals, and topics as the protocol has them."""

from formats.config.files import TopicConfig
from formats.remoting.frame import Command
from formats.remoting.shapes import TopicConfig as WireTopic
from rmqtool.rules.releases import Release


class Failed(Exception):
    """A request that is answered with an error.

    Attributes:
        code: of the answer.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code

    def answer(self, request: Command) -> Command:
        """The response."""
        return request.response(self.code, str(self))


def wire_topic(config: TopicConfig, release: Release) -> WireTopic:
    """A topic as the protocol has it."""
    return WireTopic(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=dict(config.attributes or {}) if release.has_attributes else None,
    )
