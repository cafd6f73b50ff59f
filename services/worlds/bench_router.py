"""The real router as a subject of `gir bench http` and `route`: keys, a policy, then `gir router`.

Run as `python -m services.worlds.bench_router …` it writes the policy for the benchmark's upstream and
replaces itself by the router verb, so that what is measured is the deployed process with
authentication, decision, hand-off token and decision record on.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from services.adapters.auth.key_files import (
    create_signing_key,
    load_signing_key,
    render_hand_off_keys,
    write_private,
)
from services.adapters.auth.tokens import TokenScope, mint
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.inference import Grants, ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Locality, Region
from services.core.policy import ClusterSpec, ModelPolicy, PolicySnapshot, TenantPolicy
from services.wire.policy_codec import encode_policy
from services.worlds.bench_http import Subject

TENANT: Final = TenantId("bench")
_SECRET_BYTES: Final = 32
_TOKEN_LIFETIME_S: Final = 3600


def router_subject(folder: Path, model: str, clusters: int = 1) -> Subject:
    """Return the router as a subject; `folder` is new and gets keys, policy and settings.

    `clusters`: how many clusters of its policy have the benchmark's upstream as their gateway.
    """
    ids = SystemIds()
    key = create_signing_key(folder / "keys", "bench-1")
    write_private(folder / "secret", render_hand_off_keys({"bench": ids.token(_SECRET_BYTES)}).encode())
    now_ms = SystemClock().wall_ms()
    token = mint(TokenScope(TENANT), key.kid, key.private, now_ms, _TOKEN_LIFETIME_S, ids.request_id())
    command = (
        sys.executable,
        "-m",
        "services.worlds.bench_router",
        "--folder",
        str(folder),
        "--model",
        model,
        "--clusters",
        str(clusters),
    )
    return Subject(
        "gir router",
        f"{shlex.join(command)} --port {{port}} --upstream-port {{upstream_port}}",
        (("Authorization", f"Bearer {token}"),),
    )


def _write_settings(
    folder: Path, model: str, clusters: int, port: int, grpc_port: int, upstream_port: int
) -> Path:
    gateway = f"http://127.0.0.1:{upstream_port}"
    place = Locality(Region("bench"), Jurisdiction("bench"))
    policy = PolicySnapshot(
        revision=1,
        published_at_ms=SystemClock().wall_ms(),
        clusters=tuple(
            ClusterSpec(ClusterId(f"upstream-{number}"), place, gateway, "", f"{gateway}/readyz")
            for number in range(1, clusters + 1)
        ),
        models=(ModelPolicy(ModelName(model)),),
        tenants=(TenantPolicy(TENANT, Grants()),),
        token_keys=(load_signing_key(folder / "keys").public(),),
    )
    state = folder / "state"
    state.mkdir(exist_ok=True)
    (state / "policy.bin").write_bytes(encode_policy(policy))
    settings = folder / "router.yaml"
    settings.write_text(
        f"fleet: bench\nregion: bench\njurisdiction: bench\nhttp: {{port: {port}}}\ngrpc: {{port: {grpc_port}}}\n"
        f"metrics: {{port: 0}}\nstate_dir: {state}\nhand_off_secret: {folder / 'secret'}\n"
    )
    return settings


def main() -> None:
    """Write what the router needs and become the router."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--clusters", type=int, default=1)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--grpc-port", type=int, default=0)
    parser.add_argument("--upstream-port", type=int, required=True)
    args = parser.parse_args()
    settings = _write_settings(
        args.folder, args.model, args.clusters, args.port, args.grpc_port, args.upstream_port
    )
    words = [sys.executable, "-m", "services.cli.main", "router", "--config", str(settings)]
    os.execv(sys.executable, words)  # noqa: S606 -- our own verb, by the interpreter that runs this


if __name__ == "__main__":
    main()
