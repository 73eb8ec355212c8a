"""TLS as a ``tls.properties`` says (netty.TlsHelper, netty.TlsSystemConfig).

Three things are stricter here than in Java. There is no test mode: a server needs a certificate, and a client that is
set to verify the server does so. A client with a ``tls.client.trustCertPath`` verifies the server unless told not to,
where Java ignores the path. And a server that asks clients for certificates verifies them.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from formats.config.properties import parse_properties
from rmqtool.errors import BadValue, UnreadableStore
from rmqtool.remoting.files import read_small
from rmqtool.remoting.listener import TlsMode

T = TypeVar("T")
_MOST = 1 << 20  # bytes of a properties file
_CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True)
class ServerTls:
    """How a server meets TLS.

    Attributes:
        mode: which connections are taken.
        context: certificate and key; None where there are none.
        outgoing: for connections to other servers; None for plain ones.
    """

    mode: TlsMode = TlsMode.PERMISSIVE
    context: ssl.SSLContext | None = None
    outgoing: ssl.SSLContext | None = None


PLAIN = ServerTls()


def server_tls(path: str) -> ServerTls:
    """From the file that Java is given as ``tls.config.file``; paths in it are taken from the working directory.

    Raises:
        UnreadableStore: the file, or one that it names, cannot be read.
        BadValue: a setting cannot be understood or followed.
    """
    values = _read(path)
    mode = _choice(path, values, "tls.server.mode", {mode.value: mode for mode in TlsMode}, TlsMode.PERMISSIVE)
    context = None
    if mode is not TlsMode.DISABLED:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if not _certificate(path, values, "server", context):
            raise BadValue(f"{path}: tls.server.certPath and tls.server.keyPath are missing (or set tls.server.mode="
                           "disabled)")  # fmt: skip
        asked = _choice(path, values, "tls.server.need.client.auth", _CLIENTS, ssl.CERT_NONE)
        if asked is not ssl.CERT_NONE:
            if not (_flag(values, "tls.server.authClient") and values.get("tls.server.trustCertPath")):
                raise BadValue(f"{path}: tls.server.need.client.auth needs tls.server.authClient=true and "
                               "tls.server.trustCertPath")  # fmt: skip
            _trust(path, values, "server", context)
        context.verify_mode = asked
    return ServerTls(mode, context, _client(path, values) if _flag(values, "tls.enable") else None)


def client_tls(path: str) -> ssl.SSLContext:
    """From the file that Java is given as ``tls.config.file``: for a client that speaks TLS.

    A server is verified with ``tls.client.authServer=true``, by ``tls.client.trustCertPath`` or what the system trusts,
    and with that path alone; never by its host name, and, as in Java, not at all with neither.

    Raises:
        UnreadableStore: the file, or one that it names, cannot be read.
        BadValue: a setting cannot be understood.
    """
    return _client(path, _read(path))


def unverified_context() -> ssl.SSLContext:
    """For connections whose other end is known otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _client(path: str, values: Mapping[str, str]) -> ssl.SSLContext:
    context = unverified_context()
    has_trusted = bool(values.get("tls.client.trustCertPath"))
    if _flag(values, "tls.client.authServer") or (has_trusted and not values.get("tls.client.authServer")):
        context.verify_mode = ssl.CERT_REQUIRED
        if has_trusted:
            _trust(path, values, "client", context)
        else:
            context.load_default_certs()
    _certificate(path, values, "client", context)
    return context


def _read(path: str) -> dict[str, str]:
    data = read_small(path, _MOST, "a properties file")
    return {name: value.strip() for name, value in parse_properties(data).items()}


def _flag(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "").lower() == "true"


def _choice(path: str, values: Mapping[str, str], name: str, known: Mapping[str, T], default: T) -> T:
    text = values.get(name, "")
    if text and text.lower() not in known:
        raise BadValue(f"{path}: {name}={text}: give {', '.join(known)}")
    return known[text.lower()] if text else default


def _certificate(path: str, values: Mapping[str, str], side: str, context: ssl.SSLContext) -> bool:
    """Load a side's certificate and key; whether it has them."""
    certificate, key = (values.get(f"tls.{side}.{name}") for name in ("certPath", "keyPath"))
    if not (certificate and key):
        return False
    try:
        context.load_cert_chain(certificate, key, lambda: values.get(f"tls.{side}.keyPassword", ""))
    except ssl.SSLError as err:
        reason = err.reason or "not PEM, or the wrong password"
        raise BadValue(f"{path}: {certificate} and {key}: no certificate with its key: {reason}") from None
    except OSError as err:
        raise UnreadableStore(f"{path}: {certificate} or {key}: {err.strerror}") from None
    return True


def _trust(path: str, values: Mapping[str, str], side: str, context: ssl.SSLContext) -> None:
    trusted = values[f"tls.{side}.trustCertPath"]
    try:
        context.load_verify_locations(trusted)
    except ssl.SSLError as err:
        raise BadValue(f"{path}: {trusted}: no certificates: {err.reason or 'not PEM'}") from None
    except OSError as err:
        raise UnreadableStore(f"{path}: {trusted}: {err.strerror}") from None
