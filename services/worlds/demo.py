"""`gir demo`: the demo world brought up, what to paste into a terminal, a live table until told to stop.

Words of the command line and exit codes are `cli`'s; what the world is, `topology` says; the tour plays its
story in the same world.
"""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from services.adapters.auth.key_files import KeyFileError
from services.adapters.grpc.binding import BindError
from services.adapters.ports import RefusedError, UnreachableError
from services.adapters.system.clock import SystemClock
from services.adapters.system.ids import SystemIds
from services.adapters.system.logs import log_to_file
from services.adapters.system.tasks import TaskScope
from services.control.publication import PublicationRefusedError
from services.core.policy import HealthPolicy
from services.core.units import seconds
from services.wire.config.settings_source import SettingsError
from services.worlds.demo_bus import NetworkSwitch, Parts
from services.worlds.demo_world import READY_TIMEOUT, World, WorldNotReadyError
from services.worlds.table import doors_caption, plain_line, rich_table
from services.worlds.table_rows import cluster_rows, door_rows
from services.worlds.topology import (
    EU_TENANT,
    FIRST_DOOR,
    IN_MEMORY,
    LARGE_ALIAS,
    LARGE_MODEL,
    SMALL_ALIAS,
    SMALL_MODEL,
    TENANT,
    Bus,
    WorldPlan,
    demo_plan,
)
from services.worlds.topology_keys import StateKeys
from services.worlds.topology_ports import LOOPBACK, HostPorts, PortTakenError

REACH_TIMEOUT = seconds(10)
TABLE_EVERY_S = 0.5
LINE_EVERY_S = 5.0

REFUSED = 1
WRONG_USE = 2
UNREACHABLE = 3


class CannotStartError(Exception):
    """The world cannot be brought up: one sentence, and the exit code that says of what kind it is."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """`state_dir` None: a fresh temporary folder, removed at the end."""

    base_port: int = FIRST_DOOR
    state_dir: Path | None = None
    bus: Bus = IN_MEMORY


@dataclass(frozen=True, slots=True)
class Demo:
    """The running demo: its world, its keys, what it stands on."""

    world: World
    keys: StateKeys
    parts: Parts

    @property
    def token(self) -> str:
        """A token of the tenant that may use everything."""
        return self.keys.token(TENANT, self.world.clock)

    def door(self, region: str) -> int:
        """Return the HTTP port of a region's door, whether it is open or not."""
        return next(plan.router.http.port for plan in self.world.plan.regions if plan.router.region == region)


async def demo(options: DemoOptions, switch: NetworkSwitch | None = None) -> int:
    """Bring the demo up, print how to use it, and stay until SIGINT or SIGTERM. Raises `CannotStartError`."""
    stop = told_to_stop()
    async with running_demo(options, switch=switch) as demo_:
        sys.stdout.write(welcome(demo_))
        sys.stdout.flush()
        return await stay(demo_.world, stop)


def told_to_stop() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def running_demo(
    options: DemoOptions, *, health: HealthPolicy | None = None, switch: NetworkSwitch | None = None
) -> AsyncIterator[Demo]:
    """Give the demo, started and ready, and end it afterwards. Raises `CannotStartError`."""
    with _state_folder(options.state_dir) as folder:
        log_to_file(folder / "gir.log")
        clock, ids = SystemClock(), SystemIds()
        keys = StateKeys(folder, ids)
        try:
            plan = demo_plan(
                keys,
                HostPorts(),
                clock.wall_ms(),
                base_port=options.base_port,
                bus=options.bus,
                health=health,
            )
        except PortTakenError as error:
            raise CannotStartError(
                f"{error}; stop what listens there or choose other doors: {gir_command()} demo --base-port 18080",
                WRONG_USE,
            ) from None
        except KeyFileError as error:
            raise CannotStartError(str(error), WRONG_USE) from None
        async with running_world(plan, switch) as (world, parts):
            yield Demo(world, keys, parts)


@asynccontextmanager
async def running_world(
    plan: WorldPlan, switch: NetworkSwitch | None = None, *, wait_ready: bool = True
) -> AsyncIterator[tuple[World, Parts]]:
    """Give the world of a plan, started, and end it afterwards. Raises `CannotStartError`.

    `wait_ready` is for worlds that bring their own pods: they are up only when all of it serves.
    """
    clock, ids = SystemClock(), SystemIds()
    parts = Parts(plan.bus, clock, ids, switch)
    world = World(plan, parts, clock, ids)
    try:
        region = plan.regions[0].router.region if plan.regions else "none"
        await parts.reach(plan.fleet, region, REACH_TIMEOUT)
        await world.start()
    except (UnreachableError, RefusedError) as error:
        raise CannotStartError(str(error), UNREACHABLE) from None
    except PublicationRefusedError as error:
        raise CannotStartError(str(error), REFUSED) from None
    except SettingsError as error:
        raise CannotStartError(str(error), WRONG_USE) from None
    except WorldNotReadyError as error:
        raise CannotStartError(str(error), REFUSED) from None
    except (OSError, BindError) as error:
        raise CannotStartError(f"cannot listen: {error}", WRONG_USE) from None
    try:
        if wait_ready:
            await world.wait_ready(READY_TIMEOUT)
        yield world, parts
    except WorldNotReadyError as error:
        raise CannotStartError(str(error), REFUSED) from None
    finally:
        await world.stop()


async def stay(world: World, stop: asyncio.Event) -> int:
    """Show the fleet until told to stop (0) or until a part ends by itself (1)."""
    scope = TaskScope(_log_failure)
    waiting = {scope.spawn(stop.wait(), "told to stop"), scope.spawn(world.failed.wait(), "a part failed")}
    console = Console()
    if console.is_terminal:
        # Refreshed by hand: a thread of its own would draw in the middle of the loop's work.
        with Live(console=console, auto_refresh=False, transient=True) as live:

            def draw() -> None:
                live.update(rich_table(cluster_rows(world), doors_caption(door_rows(world))), refresh=True)

            await _repeat(draw, TABLE_EVERY_S, waiting)
    else:

        def say() -> None:
            sys.stdout.write(plain_line(cluster_rows(world), door_rows(world)) + "\n")
            sys.stdout.flush()

        await _repeat(say, LINE_EVERY_S, waiting)
    await scope.close()
    if world.failed.is_set():
        sys.stderr.write("gir: a part of the world ended by itself; the log says which\n")
        return REFUSED
    return 0


async def _repeat(show: Callable[[], None], every_s: float, until: "set[asyncio.Task[Any]]") -> None:
    while True:
        show()
        done, _ = await asyncio.wait(until, timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
        if done:
            return


def _log_failure(name: str, failure: BaseException) -> None:
    logging.getLogger(__name__).error("%s ended", name, exc_info=failure)


def welcome(demo_: Demo) -> str:
    """Return what a newcomer needs: doors, token, a line to paste, a client."""
    world = demo_.world
    token = demo_.token
    base = f"http://{LOOPBACK}:{world.plan.regions[0].router.http.port}/v1"
    lines = ["", "The fleet is up: three regions, five clusters, simulated model servers.", ""]
    lines += [
        f"  door {plan.router.region:<9} http://{LOOPBACK}:{plan.router.http.port}/v1"
        f"   (jurisdiction {plan.router.jurisdiction})"
        for plan in world.plan.regions
    ]
    first = world.plan.regions[0].router
    lines += [
        "",
        f"Token (tenant {TENANT}, 12 h), to set once in another terminal:",
        "",
        f"export GIR_TOKEN={token}",
        "",
        "curl, and the same with a rule that it stays in the eu:",
        "",
        curl_line(base, f'"model": "{SMALL_MODEL}"'),
        curl_line(base, f'"model": "{LARGE_MODEL}"', "-H 'x-gir-residency: eu'"),
        "",
        "openai client, as a file of its own:",
        "",
        "import os",
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{base}", api_key=os.environ["GIR_TOKEN"])',
        "for chunk in client.chat.completions.create(",
        f'    model="{SMALL_MODEL}", messages=[{{"role": "user", "content": "hello"}}], stream=True',
        "):",
        '    print(chunk.choices[0].delta.content or "", end="")',
        "",
        f"Models:  {SMALL_MODEL} (alias {SMALL_ALIAS}) everywhere, {LARGE_MODEL} (alias {LARGE_ALIAS}) outside the eu",
        f"Tenants: {TENANT} may go anywhere, {EU_TENANT} stays in the eu; its token:",
        f"         {gir_command()} token mint --keys {demo_.keys.signing_folder} --tenant {EU_TENANT}",
        f"Watch:   {gir_command()} fleet --watch --router {LOOPBACK}:{first.grpc.port}",
        f"Log:     {demo_.keys.root / 'gir.log'}",
        f"Records: {first.decision_file}",
        "Stop:    Ctrl-C",
        "",
    ]
    return "\n".join(lines) + "\n"


def gir_command() -> str:
    """Return how this program was called, so that what is printed works where it is read."""
    called = sys.argv[0]
    return called if Path(called).name == "gir" else "gir"


def curl_line(base: str, model: str, extra: str = "") -> str:
    """Return one line of shell that streams an answer; `model` is a JSON member, `extra` more options."""
    body = (
        f'{{{model}, "messages": [{{"role": "user", "content": "hello"}}], "max_tokens": 32, "stream": true}}'
    )
    headers = "-H \"Authorization: Bearer $GIR_TOKEN\" -H 'Content-Type: application/json'"
    return f"curl -sN {base}/chat/completions {headers}{' ' * bool(extra)}{extra} -d '{body}'"


@contextmanager
def _state_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        try:
            chosen.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CannotStartError(f"{chosen}: {error.strerror or error}", WRONG_USE) from None
        yield chosen
        return
    folder = Path(tempfile.mkdtemp(prefix="gir-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
