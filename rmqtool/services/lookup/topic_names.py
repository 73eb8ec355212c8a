"""Unknown topics, and similar known ones."""

from rmqtool.services.lookup.configs import topics_of
from rmqtool.store.layout.paths import QUEUE_KINDS, StoreLayout


def topics_in(layout: StoreLayout) -> set[str]:
    """Every topic that a store has queues or settings of."""
    table = topics_of(layout, lambda _text: None)
    topics = {topic for kind in QUEUE_KINDS for topic, _queue_id, _path in layout.queue_dirs(kind)}
    return topics | set(table.topics if table is not None else ())


def unknown_topic(layout: StoreLayout, topic: str) -> str | None:
    """A message about an unknown topic; None if it exists, or no topics are known at all."""
    from difflib import get_close_matches

    known = topics_in(layout)
    if topic in known or not known:
        return None
    near = [name for name in sorted(known) if name.lower() == topic.lower()] or get_close_matches(topic, known, 3)
    return f"the store has no topic {topic}" + (f" (did you mean {' or '.join(near)}?)" if near else "")
