"""Signatures of requests, as ACL 1.0 and 2.0 have them: made by clients, checked by brokers.

Source: acl.common.AclClientRPCHook, AclUtils, AclSigner (4.9.8, 5.3.3); for the field that is left out,
acl.plain.PlainAccessValidator (4.9.8) and auth.authentication.builder.DefaultAuthenticationContextBuilder (5.3.3).
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # brokers of 4.9 do not count it, clients in Java do
_VERSION_4_9_3 = 399  # to the newest version that says this, brokers of 5.3 do as those of 4.9 do


@dataclass(frozen=True)
class Credentials:
    """Who signs.

    Attributes:
        access_key: the name of the account.
        secret_key: what the broker knows of it too; never sent.
        security_token: sent with each request where a security service gave one.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def signature_of(fields: Mapping[str, str], body: bytes, secret_key: str, *, without: str | None = None) -> str:
    """The signature of a request: HMAC-SHA1 over the values of its fields, in the order of their names, and its body.

    Args:
        without: the name of a field that does not count, beside the signature itself.
    """
    values = "".join(fields[name] for name in sorted(fields) if name not in (SIGNATURE, without))
    content = values.encode("utf-8", "replace") + body
    return base64.b64encode(hmac.digest(_bytes(secret_key), content, "sha1")).decode("ascii")


def sign(request: Command, credentials: Credentials) -> Command:
    """The same request with the fields that state and prove who sent it; a signature that it had is replaced."""
    fields = {**(request.fields or {}), ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    version, without = request.version, None
    if request.code == RequestCode.QUERY_MESSAGE and UNIQUE_KEY_QUERY in fields:
        version, without = min(version, _VERSION_4_9_3), UNIQUE_KEY_QUERY
    fields[SIGNATURE] = signature_of(fields, request.body, credentials.secret_key, without=without)
    return replace(request, fields=fields, version=version)


def is_signed_by(request: Command, secret_key: str) -> bool:
    """Whether the request's signature was made with that key, by a client that counts `UNIQUE_KEY_QUERY` or not."""
    fields = request.fields or {}
    signature = _bytes(fields.get(SIGNATURE, ""))
    expected = [signature_of(fields, request.body, secret_key, without=UNIQUE_KEY_QUERY)]
    if UNIQUE_KEY_QUERY in fields:
        expected.append(signature_of(fields, request.body, secret_key))
    return any(hmac.compare_digest(signature, _bytes(each)) for each in expected)


def _bytes(text: str) -> bytes:
    """Of any text that a peer may send, lone surrogates too."""
    return text.encode("utf-8", "replace")
