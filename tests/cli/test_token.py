"""`gir token`: keys and tokens that the authenticator and the gateway accept, and clear refusals."""

import json
import os
from pathlib import Path

import pytest

from services.adapters.auth.key_files import (
    load_signing_key,
    parse_hand_off_keys,
    parse_region_secrets,
    read_private,
)
from services.adapters.auth.tokens import read
from services.adapters.system.clock import SystemClock
from services.cli.main import main
from services.cli.token import parse_lifetime_s
from services.core.inference import ModelName
from services.core.locality import ClusterId
from services.wire.hand_off import derive_key


def test_a_minted_token_verifies_against_the_key_just_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "keys", "init", str(tmp_path), "--kid", "eu-1"]) == 0
    assert json.loads(capsys.readouterr().out)["kid"] == "eu-1"
    words = [
        "token",
        "mint",
        "--keys",
        str(tmp_path),
        "--tenant",
        "acme",
        "--models",
        "a,b",
        "--jurisdictions",
        "eu",
    ]
    assert main(words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    token = said.out.strip()
    key = load_signing_key(tmp_path)
    claims = read(token, {"eu-1": key.private.public_key()}, SystemClock().wall_ms())
    assert claims.tenant == "acme"
    assert claims.models == frozenset({ModelName("a"), ModelName("b")})
    assert main(["token", "keys", "show", str(tmp_path)]) == 0


def test_of_several_keys_the_newest_signs_and_is_named_unless_one_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, kid in enumerate(("b-old", "a-new")):
        assert main(["token", "keys", "init", str(tmp_path), "--kid", kid]) == 0
        os.utime(tmp_path / f"{kid}.ed25519.pem", (number, number))
    made = capsys.readouterr().out
    assert main(["token", "keys", "show", str(tmp_path)]) == 0
    assert capsys.readouterr().out == made
    mint = ["token", "mint", "--keys", str(tmp_path), "--tenant", "acme"]
    public = {kid: load_signing_key(tmp_path, kid).private.public_key() for kid in ("b-old", "a-new")}

    assert main(mint) == 0
    said = capsys.readouterr()
    assert "a-new signs, the newest of 2 keys" in said.err
    assert read(said.out.strip(), {"a-new": public["a-new"]}, SystemClock().wall_ms()).tenant == "acme"

    assert main([*mint, "--kid", "b-old"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert read(said.out.strip(), {"b-old": public["b-old"]}, SystemClock().wall_ms()).tenant == "acme"

    assert main([*mint, "--kid", "other"]) == 2
    assert "no signing key 'other' here; there is b-old, a-new" in capsys.readouterr().err


def test_hand_off_keys_are_derived_per_cluster(tmp_path: Path) -> None:
    region, cluster = tmp_path / "region", tmp_path / "cluster"
    assert main(["token", "hand-off", "init", str(region), "--kid", "eu1"]) == 0
    assert main(["token", "hand-off", "derive", str(region), "--cluster", "eu-a", "--out", str(cluster)]) == 0
    secret = parse_hand_off_keys(read_private(region).decode(), "region")["eu1"]
    derived = parse_hand_off_keys(read_private(cluster).decode(), "cluster")
    assert derived == {"eu1": derive_key("eu1", secret, ClusterId("eu-a")).secret}
    assert cluster.stat().st_mode & 0o077 == 0


def test_nothing_is_derived_from_what_is_derived_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    region, cluster, again = tmp_path / "region", tmp_path / "cluster", tmp_path / "again"
    assert main(["token", "hand-off", "init", str(region), "--kid", "eu1"]) == 0
    assert main(["token", "hand-off", "derive", str(region), "--cluster", "eu-a", "--out", str(cluster)]) == 0
    assert main(["token", "hand-off", "derive", str(cluster), "--cluster", "eu-a", "--out", str(again)]) == 2
    assert "holds the hand-off keys of cluster eu-a, derived already" in capsys.readouterr().err
    assert not again.exists()
    assert region.read_text().startswith("# region secret\n")


def test_a_region_s_key_is_rotated_by_adding_one_and_deriving_over_the_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    region, cluster = tmp_path / "region", tmp_path / "cluster"
    init = ["token", "hand-off", "init", str(region)]
    derive = ["token", "hand-off", "derive", str(region), "--cluster", "eu-a", "--out", str(cluster)]
    assert main([*init, "--kid", "eu1"]) == 0
    assert main(derive) == 0

    assert main([*init, "--kid", "eu2"]) == 2
    assert "exists already; --add puts a further key into it" in capsys.readouterr().err
    assert main([*init, "--kid", "eu1", "--add"]) == 2
    assert "holds a key eu1 already" in capsys.readouterr().err
    region.write_text(region.read_text().rstrip("\n"))  # An editor may leave the last line open.
    assert main([*init, "--kid", "eu2", "--add"]) == 0
    assert region.stat().st_mode & 0o777 == 0o600
    secrets = parse_region_secrets(read_private(region).decode(), "region")
    assert list(secrets) == ["eu1", "eu2"]

    assert main(derive) == 2
    assert "exists already; --replace writes over it" in capsys.readouterr().err
    assert main([*derive, "--replace"]) == 0
    assert cluster.stat().st_mode & 0o777 == 0o600
    assert parse_hand_off_keys(read_private(cluster).decode(), "cluster") == {
        kid: derive_key(kid, secret, ClusterId("eu-a")).secret for kid, secret in secrets.items()
    }

    region.write_text("".join(line for line in region.read_text().splitlines(True) if "eu1" not in line))
    capsys.readouterr()
    assert main([*derive, "--replace"]) == 0
    assert capsys.readouterr().out == f"{cluster}: hand-off keys of cluster eu-a replaced without eu1\n"


def test_only_keys_of_the_same_cluster_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    region, cluster = tmp_path / "region", tmp_path / "cluster"
    derive = ["token", "hand-off", "derive", str(region), "--cluster"]
    assert main(["token", "hand-off", "init", str(region), "--kid", "eu1"]) == 0
    assert main([*derive, "eu-a", "--out", str(cluster), "--replace"]) == 0
    for name, out in (("eu-b", cluster), ("eu-a", region)):
        before = out.read_bytes()
        assert main([*derive, name, "--out", str(out), "--replace"]) == 2
        assert f"{out}: does not say that it holds hand-off keys of cluster {name}" in capsys.readouterr().err
        assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["keys", "init", "DIR", "--kid", "a.b"], "key id 'a.b'"),
        (["keys", "show", "DIR"], "no signing key here"),
        (["mint", "--keys", "DIR", "--tenant", "acme"], "no signing key here"),
        (["hand-off", "derive", "DIR/none", "--cluster", "eu-a", "--out", "DIR/x"], "cannot be read"),
        (["hand-off", "init", "DIR/x", "--kid", ""], "key id ''"),
        (["hand-off", "init", "DIR/none", "--kid", "a", "--add"], "cannot be read"),
        (["hand-off", "init", "/dev/null/x", "--kid", "a"], "/dev/null: no folder can be made"),
        (["hand-off", "init", "/proc/x", "--kid", "a"], "/proc/x: cannot be written"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_2(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", *(word.replace("DIR", str(tmp_path)) for word in words)]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--lifetime", "13h"], "1s..12h"),
        (["--lifetime", "soon"], "whole number"),
        (["--models", "a,,b"], "no empty names"),
        (["--jurisdictions", "E U"], "must match"),
    ],
)
def test_a_scope_that_breaks_a_rule_is_not_minted(
    extra: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["token", "keys", "init", str(tmp_path)])
    assert main(["token", "mint", "--keys", str(tmp_path), "--tenant", "acme", *extra]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("text", "lifetime_s"), [("90s", 90), ("30m", 1800), ("12h", 43_200)])
def test_lifetimes(text: str, lifetime_s: int) -> None:
    assert parse_lifetime_s(text) == lifetime_s


@pytest.mark.parametrize("text", ["", "h", "0s", "-1h", "1d", "²h", "99999999h"])
def test_bad_lifetimes(text: str) -> None:
    with pytest.raises(ValueError, match="lifetime"):
        parse_lifetime_s(text)
