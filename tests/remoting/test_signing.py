"""Signatures: the values computed by Java, and what must be rejected."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.remoting.codes import RequestCode
from formats.remoting.frame import Command
from rmqtool.remoting.signing import Credentials, is_signed_by, sign, signature_of

SECRET = "12345678"
MQADMIN = Credentials("rocketmq2", SECRET)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"AccessKey": "rocketmq2"}, "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="),
        ({"AccessKey": "rocketmq2", "topic": "TBW102"}, "/u5P/wZUbhjanu4LM/UzEdo2u2I="),
        ({"topic": "TBW102", "Signature": "anything", "AccessKey": "rocketmq2"}, "/u5P/wZUbhjanu4LM/UzEdo2u2I="),
    ],
)
def test_it_is_the_signature_of_java(fields: dict[str, str], expected: str) -> None:
    assert signature_of(fields, b"", SECRET) == expected


def test_a_request_is_signed_whole() -> None:
    request = sign(Command(RequestCode.HEART_BEAT, fields=None, body=b"{}"), MQADMIN)
    assert request.fields is not None
    assert set(request.fields) == {"AccessKey", "Signature"}
    assert is_signed_by(request, SECRET)
    for changed in (
        replace(request, body=b"[]"),
        replace(request, fields={**request.fields, "topic": "T"}),
        replace(request, fields={**request.fields, "AccessKey": "another"}),
        replace(request, fields={**request.fields, "Signature": ""}),
        replace(request, fields={"AccessKey": "rocketmq2"}),
        replace(request, fields=None),
    ):
        assert not is_signed_by(changed, SECRET)
    assert not is_signed_by(request, "1234567")


def test_a_security_token_is_sent_and_signed() -> None:
    request = sign(Command(RequestCode.GET_MAX_OFFSET, fields={}), Credentials("rocketmq2", SECRET, "token"))
    assert request.fields is not None
    assert request.fields["SecurityToken"] == "token"
    assert not is_signed_by(replace(request, fields={**request.fields, "SecurityToken": "other"}), SECRET)


def test_a_query_by_unique_key_passes_on_brokers_of_both_releases() -> None:
    """4.9 leaves the field out of the signature; 5.3 too, if the client announces 4.9.3 or older."""
    fields = {"topic": "T", "key": "K", "_UNIQUE_KEY_QUERY": "true"}
    request = sign(Command(RequestCode.QUERY_MESSAGE, fields=fields), MQADMIN)
    assert request.version == 399
    assert request.fields is not None
    left_out = {name: value for name, value in request.fields.items() if name != "_UNIQUE_KEY_QUERY"}
    assert request.fields["Signature"] == signature_of(left_out, b"", SECRET)
    # a client in Java counts it, and a broker here takes that too
    by_java = {**fields, "AccessKey": "rocketmq2"}
    by_java["Signature"] = signature_of(by_java, b"", SECRET)
    assert is_signed_by(Command(RequestCode.QUERY_MESSAGE, fields=by_java), SECRET)


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(MQADMIN)


@given(st.dictionaries(st.text(), st.text()), st.binary(), st.text(min_size=1))
def test_any_text_can_be_signed_and_looked_at(fields: dict[str, str], body: bytes, secret: str) -> None:
    request = sign(Command(1, fields=fields, body=body), Credentials("someone", secret))
    assert is_signed_by(request, secret)
    assert not is_signed_by(replace(request, body=body + b"x"), secret)
    is_signed_by(Command(1, fields=fields, body=body), secret)
