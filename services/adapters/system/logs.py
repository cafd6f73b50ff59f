"""Logging of a process: where its lines go, and which libraries speak only when something is wrong.

Called once, at the start of a process; nothing here is on a request's path.
"""

import logging
import sys
from pathlib import Path
from typing import Final

LINE: Final = "%(asctime)s %(levelname)s %(message)s"
LEVELS: Final = {
    # One line per probe would drown the fleet's own moves.
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    # What it says of a bus that is away, a hundred lines a second, our own clients say in one each.
    "aiokafka": logging.CRITICAL,
}


def log_to_stderr() -> None:
    """Send this process's log to standard error, from INFO on."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LINE)
    _quiet_libraries()


def log_to_file(file: Path) -> None:
    """Send this process's log to `file`, with the names of those who speak."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    _quiet_libraries()


def _quiet_libraries() -> None:
    for name, level in LEVELS.items():
        logging.getLogger(name).setLevel(level)
