import threading
from pathlib import Path

import pytest

from services.adapters.memory.clock import VirtualClock
from services.adapters.system.tasks import TaskScope
from services.core.units import WallMs, ms, seconds
from services.global_router.policy_file import (
    CONFIRM_INTERVAL,
    FILE_NAME,
    PolicyFile,
    PolicyKeeper,
    StoredPolicy,
)
from tests.support.wait import eventually

WALL = WallMs(1_750_000_000_000)


def fail(name: str, failure: BaseException) -> None:
    raise AssertionError(name) from failure


def test_nothing_is_stored_at_first(tmp_path: Path) -> None:
    assert PolicyFile(tmp_path / "missing").load(WALL) is None
    PolicyFile(tmp_path).confirm(WALL)
    assert list(tmp_path.iterdir()) == []


def test_what_is_saved_is_loaded_with_the_age_of_its_confirmation(tmp_path: Path) -> None:
    file = PolicyFile(tmp_path / "state")
    file.save(b"one", WALL)
    file.save(b"two", WALL)
    assert file.load(WallMs(WALL + 5000)) == StoredPolicy(b"two", ms(5000))
    file.confirm(WallMs(WALL + 4000))
    assert file.load(WallMs(WALL + 5000)) == StoredPolicy(b"two", ms(1000))
    assert file.load(WallMs(WALL - 5000)) == StoredPolicy(b"two", ms(0))
    assert [path.name for path in (tmp_path / "state").iterdir()] == [FILE_NAME]


def test_a_failed_save_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(OSError, match=FILE_NAME):
        PolicyFile(tmp_path).save(b"new", WALL)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


async def test_the_keeper_saves_the_newest_and_confirms_now_and_then(tmp_path: Path) -> None:
    clock, scope, file = VirtualClock(), TaskScope(fail), PolicyFile(tmp_path)
    keeper = PolicyKeeper(file, clock, scope)
    assert keeper.load() is None
    keeper.save(b"one")
    keeper.save(b"two")
    await eventually(lambda: keeper.load() == StoredPolicy(b"two", ms(0)))
    await clock.advance(ms(1000))
    keeper.confirm()
    await clock.settle()
    assert keeper.load() == StoredPolicy(b"two", seconds(1))
    await clock.advance(CONFIRM_INTERVAL)
    keeper.confirm()
    await eventually(lambda: keeper.load() == StoredPolicy(b"two", ms(0)))
    await scope.close()


class SlowFile(PolicyFile):
    """Its confirmation is held until `go` is set, as a busy disk may hold it."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.confirming = threading.Event()
        self.go = threading.Event()

    def confirm(self, wall_ms: WallMs) -> None:
        self.confirming.set()
        assert self.go.wait(10)
        super().confirm(wall_ms)


async def test_a_policy_that_comes_during_a_confirmation_is_saved_after_it(tmp_path: Path) -> None:
    clock, scope, file = VirtualClock(), TaskScope(fail), SlowFile(tmp_path)
    keeper = PolicyKeeper(file, clock, scope)
    keeper.save(b"one")
    await eventually(file.confirming.is_set)
    keeper.save(b"two")
    file.go.set()
    await eventually(lambda: keeper.load() == StoredPolicy(b"two", ms(0)))
    await scope.close()


async def test_a_policy_that_disk_refused_is_saved_with_the_next_confirmation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, scope = VirtualClock(), TaskScope(fail)
    in_the_way = tmp_path / "state"
    in_the_way.write_text("a file where the directory should be")
    keeper = PolicyKeeper(PolicyFile(in_the_way), clock, scope)
    keeper.save(b"one")
    await eventually(lambda: "cannot be kept" in caplog.text)
    in_the_way.unlink()
    await clock.advance(CONFIRM_INTERVAL)
    await eventually(lambda: _confirmed(keeper))
    assert keeper.load() == StoredPolicy(b"one", ms(0))
    await scope.close()


def _confirmed(keeper: PolicyKeeper) -> bool:
    keeper.confirm()
    return keeper.load() is not None
