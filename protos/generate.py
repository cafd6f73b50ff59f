# ruff: noqa: INP001  (A program beside the protos, not a package.)
"""Generate `services/wire/gen` from `protos/`, or check that it is up to date.

Runs the locked grpcio-tools with mypy-protobuf and moves the imports of the generated
modules under `services.wire.gen`. Nothing is edited by hand in the target; with `--check`
the program generates into a temporary folder and exits 1 when the committed code differs.
"""

import argparse
import filecmp
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "services" / "wire" / "gen"
PACKAGE = "services.wire.gen"

_IMPORT = re.compile(r"^from gir\.(\S+) import", re.MULTILINE)
_SERVICE = re.compile(r"^service \w+", re.MULTILINE)


def generate(target: Path) -> list[Path]:
    """Write the modules and their stubs for every proto below `target`; return their relative paths."""
    # Imported here because it is a development dependency: `--help` works without it. It ships no types.
    from grpc_tools import protoc  # type: ignore[import-untyped]  # noqa: PLC0415

    protos = sorted(PROTOS.rglob("*.proto"))
    services = [path for path in protos if _SERVICE.search(path.read_text())]
    plugins = Path(sys.executable).parent
    for sources, arguments in (
        (protos, [f"--python_out={target}", f"--mypy_out=quiet:{target}"]),
        (services, [f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}"]),
    ):
        status = protoc.main(
            [
                "protoc",
                f"--proto_path={PROTOS}",
                f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
                f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
                *arguments,
                *(str(path.relative_to(PROTOS)) for path in sources),
            ]
        )
        if status != 0:
            raise SystemExit("protoc refused the protos; its message is above")
    for package in {path.parent for path in target.rglob("*.py")} | {target, target / "gir"}:
        (package / "__init__.py").touch()
    written = sorted(path for path in target.rglob("*") if path.suffix in {".py", ".pyi"})
    for path in written:
        path.write_text(_IMPORT.sub(rf"from {PACKAGE}.gir.\1 import", path.read_text()))
    return [path.relative_to(target) for path in written]


def difference() -> list[str]:
    """Return one line per generated file that is missing, stale or left over in the target."""
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        wanted = set(generate(fresh))
        present = {p.relative_to(TARGET) for p in TARGET.rglob("*") if p.suffix in {".py", ".pyi"}}
        lines = [f"missing: {path}" for path in sorted(wanted - present)]
        lines += [f"left over: {path}" for path in sorted(present - wanted)]
        for path in sorted(wanted & present):
            if not filecmp.cmp(fresh / path, TARGET / path, shallow=False):
                lines.append(f"differs: {path}")
        return lines


def main() -> int:
    """Regenerate, or with `--check` compare; exit 1 when the committed code is not what the protos say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    if parser.parse_args().check:
        lines = difference()
        if lines:
            sys.stderr.write("\n".join([*lines, "run: python protos/generate.py", ""]))
        return 1 if lines else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = set(generate(TARGET))
    for path in [p for p in TARGET.rglob("*") if p.suffix in {".py", ".pyi"}]:
        if path.relative_to(TARGET) not in wanted:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
