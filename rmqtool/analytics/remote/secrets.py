"""Keeps keys, passwords and tokens in URIs out of messages, plans, manifests and logs.

There, a URI is represented by :func:`rmqtool.store.disk.remote.show_uri`. Messages of other libraries (pyarrow, Spark,
a server) may repeat their arguments, so the secrets of every URI that this process has opened are removed from them.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, unquote_plus

from rmqtool.errors import RmqError
from rmqtool.store.disk.remote import show_uri

_HIDDEN = "***"
_SHORTEST = 3  # characters; shorter strings are not treated as secrets, since replacing them would garble text
_LONG = 6  # minimum length of a part of a secret, characters
_BETWEEN = re.compile(r"[/?=&%:+]")
_OPEN = frozenset(  # options that contain no credentials
    ("region", "endpoint_override", "scheme", "allow_bucket_creation", "allow_bucket_deletion", "retry_limit_seconds")
)
_known: dict[str, None] = {}  # URIs in the order in which they were seen


def remember(uri: str) -> None:
    """Remove the secrets of a URI from all messages from now on."""
    _known.setdefault(uri)


def remove_secrets(text: str, uris: Iterable[str] = ()) -> str:
    """Return a text without the secrets of these URIs and of all URIs opened so far."""
    for uri in dict.fromkeys((*uris, *_known)):
        if uri in text:
            text = text.replace(uri, show_uri(uri))
        for secret in sorted(secrets_of(uri), key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
    return text


@contextmanager
def clean(*uris: str) -> Iterator[None]:
    """Remove the secrets of URIs from errors raised in a ``with`` block."""
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
    """Return the parts of a URI that must not be shown: user, password, and all options that may contain secrets."""
    base, _mark, options = uri.partition("?")
    scheme, mark, rest = base.partition("://")
    if not mark:
        return set()
    secrets = []
    if "@" in uri.partition("://")[2]:
        # an unescaped key may contain a slash or question mark; everything before the last @ is credentials
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
    # an error about an unparsable URI may quote only part of it
    secrets += [part for text in secrets for part in _BETWEEN.split(text) if len(part) >= _LONG]
    return {text for text in secrets if len(text) >= _SHORTEST}
