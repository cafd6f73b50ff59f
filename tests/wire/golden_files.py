"""Golden files: bytes written once by an older build, which must decode for ever.

`check(name, data)` compares with the committed file, byte for byte, which holds because these
messages have no maps. With GIR_REWRITE_GOLDEN=1 a missing file is written; an existing one never is.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check(name: str, data: bytes) -> None:
    path = FOLDER / name
    if os.environ.get("GIR_REWRITE_GOLDEN") == "1" and not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    assert path.read_bytes() == data, f"{name}: the encoding changed; add a new version beside it"


def read(name: str) -> bytes:
    return (FOLDER / name).read_bytes()
