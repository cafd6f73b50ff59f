"""Runs one picker as a process: start, say where it listens, wait for a signal, end in order.

Words of the command line and exit codes' names are `cli`'s; logging goes to standard error.
"""

import asyncio
import signal
import sys

from services.adapters.ports import AdapterError
from services.adapters.system.heap import settle_heap
from services.adapters.system.logs import log_to_stderr
from services.endpoint_picker.assembly import build
from services.endpoint_picker.process import EndpointPicker
from services.endpoint_picker.settings import Accept, PickerSettings
from services.wire.config.settings_source import SettingsError

STOPPED = 0
FAILED = 1
WRONG_SETTINGS = 2


async def serve(settings: PickerSettings) -> int:
    """Serve until SIGINT or SIGTERM. 1 when an address is taken or a part failed, 2 for wrong settings."""
    log_to_stderr()
    if not settings.kafka.bootstrap and settings.http.accept is Accept.ROUTER:
        # Beside a gateway of its own a picker has no fleet to report to.
        return _complain(
            "kafka.bootstrap: required by `http.accept: router`: reports go over the bus", WRONG_SETTINGS
        )
    try:
        picker = build(settings)
    except SettingsError as error:
        return _complain(str(error), WRONG_SETTINGS)
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    try:
        await picker.start()
    except (OSError, AdapterError) as error:
        return _complain(f"cannot listen: {error}", FAILED)
    settle_heap()
    _announce(settings, picker)
    if picker.failure is not None:
        picker.failure.add_done_callback(lambda _: told_to_stop.set())
    await told_to_stop.wait()
    await picker.stop()
    return FAILED if picker.failure is not None and picker.failure.done() else STOPPED


def _announce(settings: PickerSettings, picker: EndpointPicker) -> None:
    if settings.insecure_bind:
        _complain("listening without TLS beyond loopback is allowed", STOPPED)
    sys.stdout.write(
        f"cluster {settings.cluster}: http {settings.http.host}:{picker.http_port} "
        f"grpc {settings.grpc.host}:{picker.grpc_port} "
        f"metrics {settings.metrics.host}:{picker.metrics_port}\n"
    )
    sys.stdout.flush()


def _complain(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"gir endpoint-picker: {line}\n")
    return code
