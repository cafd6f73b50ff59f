"""Key files on disk: a region's Ed25519 signing key and a cluster's hand-off keys.

Private files are created with mode 0600 and refused when others may read them, because a
readable signing key is a fleet-wide password.
"""

import base64
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.core.locality import ClusterId
from services.core.policy import TokenKey

_PRIVATE_SUFFIX = ".ed25519.pem"
_REGION_MARK = "# region secret"
_DERIVED_MARK = "# hand-off keys of cluster "


class KeyFileError(Exception):
    """A key file is missing, unreadable, malformed or readable by others; the message names file and rule."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A region's token-signing key."""

    kid: str
    private: Ed25519PrivateKey

    def public(self) -> TokenKey:
        """Return the half that travels in policy."""
        raw = self.private.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        return TokenKey(self.kid, raw)


def create_signing_key(folder: Path, kid: str) -> SigningKey:
    """Make a key under `folder`/`kid`.ed25519.pem (0600); raises `KeyFileError` if the file exists."""
    key = SigningKey(kid, Ed25519PrivateKey.generate())
    pem = key.private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / f"{kid}{_PRIVATE_SUFFIX}", pem)
    return key


def load_signing_key(folder: Path, kid: str | None = None) -> SigningKey:
    """Return the key `kid` of `folder`, or the newest, or raise `KeyFileError`."""
    files = _signing_files(folder)
    if kid is None:
        return _read_signing_key(files[-1])
    for file in files:
        if _kid_of(file) == kid:
            return _read_signing_key(file)
    raise KeyFileError(f"{folder}: no signing key {kid!r} here; there is {', '.join(map(_kid_of, files))}")


def load_signing_keys(folder: Path) -> tuple[SigningKey, ...]:
    """Return all keys in `folder`, oldest first, at least one, or raise `KeyFileError`."""
    return tuple(map(_read_signing_key, _signing_files(folder)))


def _signing_files(folder: Path) -> list[Path]:
    # Of two keys made within one step of the file system's clock, the later name is the newer.
    files = sorted(folder.glob(f"*{_PRIVATE_SUFFIX}"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    if not files:
        raise KeyFileError(f"{folder}: no signing key here; make one with `gir token keys init {folder}`")
    return files


def _kid_of(file: Path) -> str:
    return file.name.removesuffix(_PRIVATE_SUFFIX)


def _read_signing_key(file: Path) -> SigningKey:
    private = serialization.load_pem_private_key(read_private(file), password=None)
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(f"{file}: not an Ed25519 private key")
    return SigningKey(_kid_of(file), private)


def parse_hand_off_keys(text: str, source: str) -> Mapping[str, bytes]:
    """Return kid -> secret from lines `kid base64url`; blank lines and `#` comments are skipped."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            kid, encoded = words
            keys[kid] = base64.urlsafe_b64decode(encoded)
        except ValueError:
            raise KeyFileError(f"{source}:{number}: expected `kid base64url-secret`") from None
        if len(keys[kid]) < 32:
            raise KeyFileError(f"{source}:{number}: the secret of {kid!r} must be at least 32 bytes")
    return keys


def parse_region_secrets(text: str, source: str) -> Mapping[str, bytes]:
    """Return kid -> secret of a region; refuses a cluster's derived keys, from which nothing may be derived again."""
    cluster = derived_for(text)
    if cluster is not None:
        raise KeyFileError(
            f"{source}: holds the hand-off keys of cluster {cluster}, derived already; "
            "the region secret they came from is needed"
        )
    return parse_hand_off_keys(text, source)


def derived_for(text: str) -> str | None:
    """Return the cluster whose derived keys a file says it holds; None when it says nothing of the kind."""
    for line in text.splitlines():
        if line.startswith(_DERIVED_MARK):
            return line.removeprefix(_DERIVED_MARK).strip()
    return None


def render_region_secrets(keys: Mapping[str, bytes]) -> str:
    """Return the text of a region's secret file, marked as what it is."""
    return f"{_REGION_MARK}\n{render_hand_off_keys(keys)}"


def render_cluster_keys(cluster: ClusterId, keys: Mapping[str, bytes]) -> str:
    """Return the text of a cluster's derived key file, marked so that it is not taken for a region's secret."""
    return f"{_DERIVED_MARK}{cluster}\n{render_hand_off_keys(keys)}"


def render_hand_off_keys(keys: Mapping[str, bytes]) -> str:
    """Return the lines that `parse_hand_off_keys` reads back."""
    return "".join(f"{kid} {base64.urlsafe_b64encode(secret).decode()}\n" for kid, secret in keys.items())


def write_private(file: Path, content: bytes) -> None:
    """Create `file` with mode 0600 and this content; never overwrites."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise KeyFileError(f"{file.parent}: no folder can be made there: {error.strerror}") from None
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{file}: exists already; a key is never overwritten") from None
    except OSError as error:
        raise KeyFileError(f"{file}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def replace_private(file: Path, content: bytes) -> None:
    """Write `file` with mode 0600 over what is there, at once: a reader finds the old content or the new."""
    try:
        descriptor, scratch = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(descriptor)
            Path(scratch).replace(file)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise KeyFileError(f"{file}: cannot be written: {error.strerror}") from None


def read_private(file: Path) -> bytes:
    """Return the content of a private file, or raise `KeyFileError` when it is absent or not private."""
    try:
        mode = file.stat().st_mode
        content = file.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{file}: cannot be read: {error.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(f"{file}: mode {stat.S_IMODE(mode):04o} lets others read it; use chmod 600")
    return content
