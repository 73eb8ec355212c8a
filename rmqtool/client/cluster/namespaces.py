"""Names of topics and groups with a namespace (protocol.NamespaceUtil): ``NAMESPACE%NAME``.

The prefix of a retry or dead-letter topic comes before it: ``%RETRY%NAMESPACE%GROUP``.
"""

from formats.topics import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

_SEPARATOR = "%"
_SYSTEM_GROUP = "CID_RMQ_SYS_"


def with_namespace(namespace: str, name: str) -> str:
    """A name with the namespace; names that have it already, and system names, are unchanged."""
    prefix, rest = _split(name)
    if not namespace or not rest or _of_system(name) or rest.startswith(namespace + _SEPARATOR):
        return name
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """A name without the namespace; names of other namespaces are unchanged."""
    prefix, rest = _split(name)
    if not namespace or not rest.startswith(namespace + _SEPARATOR):
        return name
    return prefix + rest[len(namespace) + 1 :]


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _of_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_PREFIX, _SYSTEM_GROUP))
