"""Key files: private by mode, never overwritten, clear about what is wrong."""

import os
from pathlib import Path

import pytest

from services.adapters.auth.key_files import (
    KeyFileError,
    create_signing_key,
    derived_for,
    load_signing_key,
    load_signing_keys,
    parse_hand_off_keys,
    parse_region_secrets,
    read_private,
    render_cluster_keys,
    render_hand_off_keys,
    render_region_secrets,
    replace_private,
    write_private,
)
from services.core.locality import ClusterId


def test_a_created_key_is_private_and_loads_back(tmp_path: Path) -> None:
    key = create_signing_key(tmp_path / "keys", "eu-1")
    file = tmp_path / "keys" / "eu-1.ed25519.pem"
    assert file.stat().st_mode & 0o777 == 0o600
    loaded = load_signing_key(tmp_path / "keys")
    assert loaded.kid == "eu-1"
    assert loaded.public() == key.public()


def test_several_keys_are_oldest_first_and_each_loads_by_its_kid(tmp_path: Path) -> None:
    for number, kid in enumerate(("eu-2", "eu-1")):
        create_signing_key(tmp_path, kid)
        os.utime(tmp_path / f"{kid}.ed25519.pem", (number, number))
    assert [key.kid for key in load_signing_keys(tmp_path)] == ["eu-2", "eu-1"]
    assert load_signing_key(tmp_path).kid == "eu-1"
    assert load_signing_key(tmp_path, "eu-2").public() == load_signing_keys(tmp_path)[0].public()
    with pytest.raises(KeyFileError, match="no signing key 'eu-3' here; there is eu-2, eu-1"):
        load_signing_key(tmp_path, "eu-3")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    create_signing_key(tmp_path, "eu-1")
    with pytest.raises(KeyFileError, match="never overwritten"):
        create_signing_key(tmp_path, "eu-1")


def test_a_replaced_file_is_private_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write_private(file, b"old")
    replace_private(file, b"new")
    assert read_private(file) == b"new"
    assert file.stat().st_mode & 0o777 == 0o600
    (tmp_path / "folder" / "full").mkdir(parents=True)
    with pytest.raises(KeyFileError, match="folder: cannot be written"):
        replace_private(tmp_path / "folder", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "keys"]


def test_a_folder_without_keys_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="gir token keys init"):
        load_signing_key(tmp_path)


def test_a_readable_key_is_refused(tmp_path: Path) -> None:
    create_signing_key(tmp_path, "eu-1")
    (tmp_path / "eu-1.ed25519.pem").chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        load_signing_key(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"nothing\.txt"):
        read_private(tmp_path / "nothing.txt")


def test_hand_off_keys_round_trip(tmp_path: Path) -> None:
    keys = {"eu1": b"a" * 32, "us1": b"\xff" * 32}
    write_private(tmp_path / "keys.txt", b"# comment\n\n" + render_hand_off_keys(keys).encode())
    assert parse_hand_off_keys(read_private(tmp_path / "keys.txt").decode(), "keys.txt") == keys


def test_files_say_whose_keys_they_hold_and_read_back() -> None:
    keys = {"eu1": b"a" * 32, "us1": b"b" * 32}
    secret, derived = render_region_secrets(keys), render_cluster_keys(ClusterId("eu-a"), keys)
    assert (derived_for(secret), derived_for(derived)) == (None, "eu-a")
    assert parse_hand_off_keys(derived, "f") == parse_region_secrets(secret, "f") == keys
    # Files of several regions may be put together, and one without a mark may be a region's.
    assert derived_for(render_hand_off_keys(keys) + derived) == "eu-a"
    assert parse_region_secrets(render_hand_off_keys(keys), "f") == keys
    with pytest.raises(KeyFileError, match=r"f: holds the hand-off keys of cluster eu-a"):
        parse_region_secrets(derived, "f")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("justkid", "expected"),
        ("kid not*base64", "expected"),
        ("kid AAAA", "at least 32 bytes"),
        ("a b c", "expected"),
    ],
)
def test_a_malformed_hand_off_line_is_named(text: str, rule: str) -> None:
    with pytest.raises(KeyFileError, match=f"f.txt:2: .*{rule}"):
        parse_hand_off_keys(f"\n{text}\n", "f.txt")
