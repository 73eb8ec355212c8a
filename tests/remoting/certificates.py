"""Certificates of a temporary authority, as files, and properties files that name them."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization as s


def locked(key: bytes, password: bytes | None = None) -> bytes:
    """A key in Java's format, PKCS #8, optionally with a password."""
    kind = s.NoEncryption() if password is None else s.BestAvailableEncryption(password)
    return s.load_pem_private_key(key, None).private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, kind)


class Certificates:
    """``authority``, ``server`` and ``server.key``, ``client`` and ``client.key``, as PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        issuer = trustme.CA()
        issuer.cert_pem.write_to_path(self.path("authority"))
        for side in ("server", "client"):
            made = issuer.issue_cert("127.0.0.1")
            Path(self.path(f"{side}.key")).write_bytes(locked(made.private_key_pem.bytes()))
            for blob in made.cert_chain_pems:
                blob.write_to_path(self.path(side), append=True)

    def path(self, name: str) -> str:
        """The path of a file."""
        return str(self.folder / name)

    def properties(self, name: str, **values: str) -> str:
        """Write a properties file; ``_`` in names means a dot, ``@x`` in values the path of x."""
        lines = [f"{key.replace('_', '.')}={self.path(v[1:]) if v[:1] == '@' else v}\n" for key, v in values.items()]
        path = Path(self.path(name))
        path.write_text("".join(lines))
        return str(path)

    def server(self, **more: str) -> str:
        """The properties of a server."""
        given = {"tls_server_certPath": "@server", "tls_server_keyPath": "@server.key", "tls_test_mode_enable": "false"}
        return self.properties("server.properties", **{**given, **more})

    def client(self, **more: str) -> str:
        """The properties of a client that verifies the server."""
        given = {
            "tls_enable": "true", "tls_test_mode_enable": "false", "tls_client_authServer": "true",
            "tls_client_trustCertPath": "@authority",
        }  # fmt: skip
        return self.properties("client.properties", **{**given, **more})
