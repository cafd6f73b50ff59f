"""The option that rewrites the health stories; apart from their runner because pytest looks for it here."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the health stories show into their files; read the diff before committing it",
    )
