"""The decision log: bounded, findable, and honest about what it lost."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from services.adapters.system import decision_log
from services.adapters.system.decision_log import RingDecisionLog


@dataclass(frozen=True)
class Record:
    request_id: str


def render(record: Record) -> bytes:
    return record.request_id.encode()


def test_the_ring_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "RING_MAX_RECORDS", 2)
    log = RingDecisionLog[Record](render)
    for name in ("a", "b", "c"):
        log.append(Record(name))
    assert log.find("a") is None
    assert log.find("c") == Record("c")
    assert [record.request_id for record in log.recent()] == ["b", "c"]
    log.flush()


def test_flush_appends_lines_once(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    log = RingDecisionLog(render, file)
    log.append(Record("a"))
    log.flush()
    log.append(Record("b"))
    log.flush()
    log.flush()
    assert file.read_text() == "a\nb\n"


def test_a_failing_disk_and_a_full_queue_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_log, "UNWRITTEN_MAX_RECORDS", 2)
    log = RingDecisionLog(render, tmp_path / "missing" / "decisions.jsonl")
    for name in ("a", "b", "c"):
        log.append(Record(name))
    assert log.dropped == 1
    log.flush()
    assert log.dropped == 3
    assert log.find("c") == Record("c")


@pytest.mark.parametrize("fault", [ValueError, TypeError])
def test_a_record_that_cannot_be_rendered_costs_itself_only(fault: type[Exception], tmp_path: Path) -> None:
    def render_or_fail(record: Record) -> bytes:
        if record.request_id == "poison":
            raise fault
        return render(record)

    log = RingDecisionLog[Record](render_or_fail, tmp_path / "log")
    for name in ("a", "poison", "b"):
        log.append(Record(name))
    log.flush()
    assert (tmp_path / "log").read_bytes() == b"a\nb\n"
    assert log.dropped == 1
