"""Certificates for loopback: a strict verifier takes them, for the names they have and no other."""

import ssl
from pathlib import Path

import pytest

from deploy.stack.certificates import write_certificates


def shaken(directory: Path, name: str) -> None:
    """Let a client and a server shake hands in memory, the client as strict as Python can be."""
    client_context = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "server.crt", directory / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_server_proves_its_names(tmp_path: Path, name: str) -> None:
    write_certificates(tmp_path)
    shaken(tmp_path, name)
    assert (tmp_path / "server.key").stat().st_mode & 0o077 == 0


def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shaken(tmp_path, "example.org")
    other = tmp_path / "other"
    other.mkdir()
    write_certificates(other)
    (tmp_path / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(tmp_path, "localhost")
