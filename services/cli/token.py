"""`gir token`: signing keys of a region, bearer tokens, and hand-off secrets.

Works on files alone: a token is minted without asking any service, and only public keys are
ever published (in the policy).
"""

import argparse
import base64
import json
import re
import sys
from pathlib import Path

from services.adapters.auth.key_files import (
    KeyFileError,
    SigningKey,
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
from services.adapters.auth.tokens import MAX_LIFETIME_S, TokenScope, mint
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.cli.exit_codes import DONE, USAGE
from services.core.inference import ModelName, TenantId
from services.core.locality import ClusterId, Jurisdiction, Region, check_name
from services.wire.hand_off import derive_key

_KID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600}
HAND_OFF_SECRET_BYTES = 32


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its words."""
    parser = subparsers.add_parser(
        "token", help="make signing keys, mint bearer tokens, derive hand-off keys"
    )
    words = parser.add_subparsers(dest="word", required=True)
    keys = words.add_parser("keys", help="the region's signing key").add_subparsers(dest="act", required=True)
    init = keys.add_parser("init", help="make DIR/KID.ed25519.pem (mode 0600) and print the public half")
    init.add_argument("directory", type=Path, metavar="DIR")
    init.add_argument("--kid", default="gir-1", help="key id, [A-Za-z0-9_-]{1,64} (default: %(default)s)")
    show = keys.add_parser("show", help="print the public halves for the policy's TokenKeys, newest last")
    show.add_argument("directory", type=Path, metavar="DIR")
    minted = words.add_parser("mint", help="print a bearer token")
    minted.add_argument("--keys", type=Path, required=True, metavar="DIR", help="folder of the signing keys")
    minted.add_argument("--kid", help="key that signs (default: the newest in DIR)")
    minted.add_argument("--tenant", required=True)
    minted.add_argument("--models", help="comma-separated models the token is limited to")
    minted.add_argument("--jurisdictions", help="comma-separated jurisdictions the token is limited to")
    minted.add_argument("--regions", help="comma-separated regions the token is limited to")
    minted.add_argument(
        "--lifetime", default="1h", help="such as 90s, 30m, 12h; at most 12h (default: %(default)s)"
    )
    secret = words.add_parser("hand-off", help="secrets of the hop to cluster gateways")
    acts = secret.add_subparsers(dest="act", required=True)
    new = acts.add_parser("init", help="make a region secret file (mode 0600)")
    new.add_argument("file", type=Path, metavar="FILE")
    new.add_argument("--kid", required=True, help="key id, such as eu-west-1")
    new.add_argument(
        "--add", action="store_true", help="put a further key into an existing FILE; the last one signs"
    )
    derive = acts.add_parser("derive", help="write one cluster's derived keys to a file (mode 0600)")
    derive.add_argument("file", type=Path, metavar="SECRET_FILE")
    derive.add_argument("--cluster", required=True)
    derive.add_argument("--out", type=Path, required=True, metavar="FILE")
    derive.add_argument(
        "--replace", action="store_true", help="write over FILE when it holds keys of the same cluster"
    )


def run(args: argparse.Namespace) -> int:
    """Run one `token` word; bad names, files and lifetimes are sentences on stderr and exit 2."""
    try:
        if args.word == "mint":
            return _mint(args)
        if args.word == "keys":
            return _keys(args)
        return _hand_off(args)
    except (KeyFileError, ValueError) as error:
        print(f"gir token: {error}", file=sys.stderr)
        return USAGE


def _keys(args: argparse.Namespace) -> int:
    if args.act == "init":
        keys: tuple[SigningKey, ...] = (create_signing_key(args.directory, _checked_kid(args.kid)),)
    else:
        keys = load_signing_keys(args.directory)
    for public in (key.public() for key in keys):
        print(json.dumps({"kid": public.kid, "publicKey": base64.b64encode(public.public_key).decode()}))
    return DONE


def _signer(folder: Path, kid: str | None) -> SigningKey:
    """Return the key that signs; where it is one of several and was not named, say which it is."""
    if kid is not None:
        return load_signing_key(folder, _checked_kid(kid))
    *older, newest = load_signing_keys(folder)
    if older:
        print(
            f"gir token: {newest.kid} signs, the newest of {len(older) + 1} keys in {folder}; "
            "--kid names another",
            file=sys.stderr,
        )
    return newest


def _mint(args: argparse.Namespace) -> int:
    key = _signer(args.keys, args.kid)
    models, jurisdictions, regions = _list(args.models), _list(args.jurisdictions), _list(args.regions)
    scope = TokenScope(
        TenantId(check_name(args.tenant, "tenant")),
        None if models is None else tuple(map(ModelName, models)),
        None if jurisdictions is None else tuple(map(Jurisdiction, jurisdictions)),
        None if regions is None else tuple(map(Region, regions)),
    )
    ids = SystemIds()
    print(
        mint(
            scope,
            key.kid,
            key.private,
            SystemClock().wall_ms(),
            parse_lifetime_s(args.lifetime),
            ids.request_id(),
        )
    )
    return DONE


def _hand_off(args: argparse.Namespace) -> int:
    if args.act == "init":
        _make_secret(args.file, _checked_kid(args.kid), add=args.add)
    else:
        _derive(args.file, ClusterId(check_name(args.cluster, "cluster id")), args.out, replace=args.replace)
    return DONE


def _make_secret(file: Path, kid: str, *, add: bool) -> None:
    made = {kid: SystemIds().token(HAND_OFF_SECRET_BYTES)}
    if not add:
        if file.exists():
            raise KeyFileError(f"{file}: exists already; --add puts a further key into it")
        write_private(file, render_region_secrets(made).encode())
        print(f"{file}: region secret {kid} written")
        return
    text = read_private(file).decode()
    if kid in parse_region_secrets(text, str(file)):
        raise KeyFileError(f"{file}: holds a key {kid} already; a new key needs a new id")
    lines = text if not text or text.endswith("\n") else f"{text}\n"
    replace_private(file, (lines + render_hand_off_keys(made)).encode())
    print(f"{file}: region secret {kid} added; routers started from now on sign with it")


def _derive(file: Path, cluster: ClusterId, out: Path, *, replace: bool) -> None:
    secrets = parse_region_secrets(read_private(file).decode(), str(file))
    derived = {kid: derive_key(kid, secret, cluster).secret for kid, secret in secrets.items()}
    content = render_cluster_keys(cluster, derived).encode()
    if not out.exists():
        write_private(out, content)
        print(f"{out}: hand-off keys of cluster {cluster} written")
        return
    if not replace:
        raise KeyFileError(f"{out}: exists already; --replace writes over it")
    before = read_private(out).decode()
    if derived_for(before) != cluster:
        raise KeyFileError(
            f"{out}: does not say that it holds hand-off keys of cluster {cluster}; it is kept"
        )
    gone = [kid for kid in parse_hand_off_keys(before, str(out)) if kid not in derived]
    replace_private(out, content)
    print(f"{out}: hand-off keys of cluster {cluster} replaced", *(["without", *gone] if gone else []))


def parse_lifetime_s(text: str) -> int:
    """Return seconds for `90s`, `30m` or `12h`; raises `ValueError` with the rule."""
    amount, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not amount.isascii() or not amount.isdigit():
        raise ValueError(f"lifetime {text!r}: write a whole number and s, m or h, such as 30m")
    lifetime_s = int(amount) * _UNITS[unit]
    if not 1 <= lifetime_s <= MAX_LIFETIME_S:
        raise ValueError(f"lifetime {text!r}: must lie in 1s..12h")
    return lifetime_s


def _checked_kid(kid: str) -> str:
    if not _KID.match(kid):
        raise ValueError(f"key id {kid!r}: must match [A-Za-z0-9_-]{{1,64}}")
    return kid


def _list(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ValueError(f"{text!r}: a comma-separated list has no empty names")
    return names
