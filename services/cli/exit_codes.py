"""Exit codes of every verb: fixed, so that scripts and CI can branch on them."""

from typing import Final

DONE: Final = 0
NO: Final = 1
"""The verb worked and its answer is no: a claim failed, a document is invalid, a limit refused."""
USAGE: Final = 2
"""The command line or a configuration file is wrong."""
UNREACHABLE: Final = 3
"""Something the verb depends on could not be reached."""
