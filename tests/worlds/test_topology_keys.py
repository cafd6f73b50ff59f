import stat
from pathlib import Path

import pytest

from services.adapters.auth.authenticator import Authenticator
from services.adapters.auth.key_files import KeyFileError, parse_hand_off_keys
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.core.inference import Grants, TenantId
from services.core.locality import ClusterId
from services.core.policy import PolicySnapshot, TenantPolicy
from services.core.units import WallMs
from services.wire.hand_off import derive_key
from services.worlds.topology_keys import StateKeys


@pytest.fixture
def keys(tmp_path: Path) -> StateKeys:
    return StateKeys(tmp_path / "state", SystemIds())


def test_secrets_are_private_and_found_again(keys: StateKeys) -> None:
    first = (keys.signing_key().public(), keys.region_secret("eu-west").read_bytes())
    again = StateKeys(keys.root, SystemIds())
    assert (again.signing_key().public(), again.region_secret("eu-west").read_bytes()) == first
    assert stat.S_IMODE(keys.region_secret("eu-west").stat().st_mode) == 0o600


def test_a_cluster_knows_each_region_by_the_key_derived_for_it(keys: StateKeys) -> None:
    file = keys.cluster_keys("c.1", ["eu-west", "us.east"])
    known = parse_hand_off_keys(file.read_text(), str(file))
    for region, kid in (("eu-west", "eu-west"), ("us.east", "us_east")):
        secret = parse_hand_off_keys(keys.region_secret(region).read_text(), region)[kid]
        assert known[kid] == derive_key(kid, secret, ClusterId("c.1")).secret


def test_keys_of_a_cluster_are_derived_anew_for_other_regions(keys: StateKeys) -> None:
    keys.cluster_keys("c1", ["eu-west", "us-east"])
    file = keys.cluster_keys("c1", ["eu-west"])
    assert set(parse_hand_off_keys(file.read_text(), str(file))) == {"eu-west"}


def test_keys_derived_elsewhere_must_be_there(keys: StateKeys) -> None:
    with pytest.raises(KeyFileError, match="gir token hand-off derive"):
        keys.derived_elsewhere("c1")
    assert keys.cluster_keys("c1", ["eu-west"]) == keys.derived_elsewhere("c1")


def test_the_token_names_its_tenant_to_whoever_has_the_policy(keys: StateKeys) -> None:
    tenant = TenantPolicy(TenantId("acme"), Grants())
    policy = PolicySnapshot(1, WallMs(0), tenants=(tenant,), token_keys=(keys.signing_key().public(),))
    clock = SystemClock()
    bearer = f"Bearer {keys.token('acme', clock)}".encode()
    assert Authenticator(policy).authenticate(bearer, clock.wall_ms()).id == "acme"
