"""Libraries speak only when something is wrong; our own lines all arrive."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.adapters.system.logs import LEVELS, log_to_file, log_to_stderr


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in LEVELS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_file_gets_our_lines_and_not_the_chatter(tmp_path: Path) -> None:
    log_to_file(tmp_path / "gir.log")
    logging.getLogger("services.any").info("ours")
    logging.getLogger("httpx").info("a probe")
    logging.getLogger("aiokafka.conn").error("the bus is away, once more")
    text = (tmp_path / "gir.log").read_text()
    assert "INFO services.any ours" in text
    assert "probe" not in text
    assert "once more" not in text


def test_standard_error_is_quieted_alike() -> None:
    log_to_stderr()
    assert not logging.getLogger("aiokafka").isEnabledFor(logging.ERROR)
    assert not logging.getLogger("httpcore").isEnabledFor(logging.INFO)
