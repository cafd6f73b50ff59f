"""Runs one router, or one projector, as a process: start, say where it listens, wait, end in order.

Words of the command line are `cli`'s; logging goes to standard error.
"""

import asyncio
import signal
import sys
from typing import Final

from services.adapters.ports import AdapterError
from services.adapters.system.heap import settle_heap
from services.adapters.system.logs import log_to_stderr
from services.global_router.assembly import build, build_projector
from services.global_router.process import Router
from services.global_router.settings import ProjectorSettings, RouterSettings
from services.wire.config.settings_source import SettingsError

STOPPED: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
UNREACHABLE: Final = 3


async def serve_router(settings: RouterSettings) -> int:
    """Serve until SIGINT or SIGTERM. 1 when an address is taken or a part failed, 2 for wrong settings."""
    log_to_stderr()
    try:
        router = build(settings)
    except SettingsError as error:
        return _complain("router", str(error), WRONG_SETTINGS)
    told_to_stop = _signals()
    try:
        await router.start()
    except (OSError, AdapterError) as error:
        return _complain("router", f"cannot start: {error}", FAILED)
    settle_heap()
    _announce(settings, router)
    if router.failure is not None:
        router.failure.add_done_callback(lambda _: told_to_stop.set())
    await told_to_stop.wait()
    await router.stop()
    return FAILED if router.failure is not None and router.failure.done() else STOPPED


async def serve_projector(settings: ProjectorSettings) -> int:
    """Project until SIGINT or SIGTERM. 3 when bus or store were not reached within 10 s."""
    log_to_stderr()
    service = build_projector(settings)
    told_to_stop = _signals()
    try:
        await service.start()
    except OSError as error:
        return _complain("projector", f"cannot start: {error}", FAILED)
    contact = asyncio.ensure_future(service.first_contact())  # noqa: TID251 -- awaited or cancelled below
    stopping = asyncio.ensure_future(told_to_stop.wait())  # noqa: TID251 -- awaited or cancelled below
    await asyncio.wait((contact, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done() and not await contact:
        stopping.cancel()
        # Asked before the end, at which the bus is left too.
        away = "the bus" if not service.projector.bus_connected else "the store"
        await service.stop()
        return _complain("projector", f"{away} was not reached within 10 s", UNREACHABLE)
    contact.cancel()
    sys.stdout.write(
        f"projector of {settings.region}: {settings.kafka.bootstrap} into the store, "
        f"metrics {settings.metrics.host}:{service.metrics_port}\n"
    )
    sys.stdout.flush()
    if service.failure is not None:
        service.failure.add_done_callback(lambda _: told_to_stop.set())
    await stopping
    await service.stop()
    return FAILED if service.failure is not None and service.failure.done() else STOPPED


def _signals() -> asyncio.Event:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    return told_to_stop


def _announce(settings: RouterSettings, router: Router) -> None:
    if settings.insecure_bind:
        _complain("router", "listening without TLS beyond loopback is allowed", STOPPED)
    sys.stdout.write(
        f"router of {settings.region}: http {settings.http.host}:{router.http_port} "
        f"grpc {settings.grpc.host}:{router.grpc_port} "
        f"metrics {settings.metrics.host}:{router.metrics_port}\n"
    )
    sys.stdout.flush()


def _complain(verb: str, message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"gir {verb}: {line}\n")
    return code
