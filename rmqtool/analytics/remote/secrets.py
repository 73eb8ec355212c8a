"""URIs may hold keys, passwords and tokens: none of them gets into a message, a plan, a manifest or a log.

What stands for a URI there is :func:`rmqtool.store.disk.remote.show_uri` of it. Messages of others (pyarrow, Spark, a
server) may repeat what they were called with: from those each secret of every URI that this process has opened is
taken out.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, unquote_plus

from rmqtool.errors import RmqError
from rmqtool.store.disk.remote import show_uri

_HIDDEN = "***"
_SHORTEST = 3  # letters; what is shorter is none, and replacing it would garble any text
_LONG = 6  # letters of a part of one
_BETWEEN = re.compile(r"[/?=&%:+]")
_OPEN = frozenset(  # options that say where something is and not who asks
    ("region", "endpoint_override", "scheme", "allow_bucket_creation", "allow_bucket_deletion", "retry_limit_seconds")
)
_known: dict[str, None] = {}  # URIs, in the order in which they were seen


def remember(uri: str) -> None:
    """Have the secrets of a URI taken out of messages from now on."""
    _known.setdefault(uri)


def remove_secrets(text: str, uris: Iterable[str] = ()) -> str:
    """A text without the secrets of these URIs, and of all that were opened."""
    for uri in dict.fromkeys((*uris, *_known)):
        if uri in text:
            text = text.replace(uri, show_uri(uri))
        for secret in sorted(secrets_of(uri), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
    return text


@contextmanager
def clean(*uris: str) -> Iterator[None]:
    """Take the secrets of URIs out of the errors that leave a ``with`` block."""
    for uri in uris:
        if "://" in uri:
            remember(uri)
    try:
        yield
    except RmqError as err:
        text = str(err)
        if (better := remove_secrets(text)) != text:
            err.args = (better,)
        raise


def secrets_of(uri: str) -> set[str]:
    """What of a URI must not be seen: who asks, with which password, and all options that may say so."""
    base, _mark, options = uri.partition("?")
    scheme, mark, rest = base.partition("://")
    if not mark:
        return set()
    secrets = []
    if "@" in uri.partition("://")[2]:
        # a key that was not escaped may have a slash or a question mark in it: all before the last @ is about who asks
        authority = rest.partition("/")[0]
        who = authority.rpartition("@")[0] if "@" in authority else uri.partition("://")[2].rpartition("@")[0]
        user, colon, password = who.partition(":")
        if colon or scheme == "s3":
            secrets.append(password)
            if scheme == "s3" or "@" not in authority:
                secrets += [user, who]
    for option in options.split("&"):
        name, _equals, value = option.partition("=")
        if name.lower() not in _OPEN:
            secrets.append(value)
    secrets += [decoded for text in secrets for decoded in (unquote(text), unquote_plus(text))]
    # who cannot parse a URI may name a part of it
    secrets += [part for text in secrets for part in _BETWEEN.split(text) if len(part) >= _LONG]
    return {text for text in secrets if len(text) >= _SHORTEST}
