"""Secrets of a world in its state directory: the signing key, region secrets, derived cluster keys.

Made once and found again, so that a token outlives a restart. Every file is private (0600); how
one is written and judged is `adapters/auth/key_files`. Nothing here starts a service.
"""

from collections.abc import Collection
from pathlib import Path

from services.adapters.auth.key_files import (
    KeyFileError,
    SigningKey,
    create_signing_key,
    load_signing_key,
    parse_region_secrets,
    read_private,
    render_cluster_keys,
    render_region_secrets,
    write_private,
)
from services.adapters.auth.tokens import MAX_LIFETIME_S, TokenScope, mint
from services.adapters.ports import Clock, Ids
from services.core.inference import TenantId
from services.core.locality import ClusterId
from services.wire.hand_off import derive_key

SIGNING_KID = "gir-1"
_SECRET_BYTES = 32


class StateKeys:
    """The keys under `root`; raises `KeyFileError` for a file that cannot be read or is not private."""

    def __init__(self, root: Path, ids: Ids) -> None:
        self.root = root
        self._ids = ids

    @property
    def signing_folder(self) -> Path:
        """Where `gir token mint --keys` finds the signing key."""
        return self.root / "keys"

    def signing_key(self) -> SigningKey:
        """Return the signing key, made on first use."""
        if not self.signing_folder.is_dir():
            return create_signing_key(self.signing_folder, SIGNING_KID)
        return load_signing_key(self.signing_folder)

    def region_folder(self, region: str) -> Path:
        """Return the folder of a region's router, made on first use."""
        folder = self.root / "regions" / region
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def region_secret(self, region: str) -> Path:
        """Return the file of a region's hand-off secret, made on first use."""
        file = self.region_folder(region) / "hand-off.secret"
        if not file.exists():
            # A key id knows no dots, and a region knows no underscores.
            kid = region.replace(".", "_")
            write_private(file, render_region_secrets({kid: self._ids.token(_SECRET_BYTES)}).encode())
        return file

    def cluster_keys(self, cluster: str, regions: Collection[str]) -> Path:
        """Return the file of the keys by which `cluster` knows the routers of `regions`; always written anew."""
        derived: dict[str, bytes] = {}
        for region in regions:
            secret_file = self.region_secret(region)
            secrets = parse_region_secrets(read_private(secret_file).decode(), str(secret_file))
            derived |= {
                kid: derive_key(kid, secret, ClusterId(cluster)).secret for kid, secret in secrets.items()
            }
        file = self._cluster_file(cluster)
        file.unlink(missing_ok=True)
        write_private(file, render_cluster_keys(ClusterId(cluster), derived).encode())
        return file

    def derived_elsewhere(self, cluster: str) -> Path:
        """Return the file of a cluster's keys that was brought here; raise `KeyFileError` when there is none."""
        file = self._cluster_file(cluster)
        if not file.exists():
            raise KeyFileError(
                f"{file}: missing; derive it where the region's secret is: "
                f"gir token hand-off derive SECRET_FILE --cluster {cluster} --out FILE"
            )
        return file

    def _cluster_file(self, cluster: str) -> Path:
        return self.root / "clusters" / f"{cluster}.hand-off.keys"

    def token(self, tenant: str, clock: Clock) -> str:
        """Return a bearer token for all that `tenant` may use, valid for 12 h."""
        key = self.signing_key()
        scope = TokenScope(TenantId(tenant))
        return mint(scope, key.kid, key.private, clock.wall_ms(), MAX_LIFETIME_S, str(self._ids.request_id()))
