"""Which build of the program runs, as its package says.

Apart because it reads what is installed, which nothing else does.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGE: Final = "global-inference-router"


def package_version(package: str = PACKAGE) -> str:
    """Return the version of the installed package; empty when it runs from a source tree and is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
