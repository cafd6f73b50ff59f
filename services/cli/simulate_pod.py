"""`gir simulate-pod`: one simulated model server, OpenAI-compatible, posing as vLLM or SGLang, with fault knobs.

Parses words into settings and runs the pod until it is told to stop; the pod itself is in
`services.simulator`.
"""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from services.adapters.system.clock import SystemClock
from services.cli.exit_codes import DONE, NO, USAGE
from services.simulator.assembly import start_pod
from services.simulator.flavours import Flavour
from services.simulator.profile import PROFILES
from services.simulator.settings import PodSettings
from services.simulator.vllm_page import MetricNames
from services.wire.config.settings_source import SettingsError, load_settings

KILLED = 128 + signal.SIGKILL
"""What a shell reports for a process killed outright; `crash: exit` ends with it."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "simulate-pod",
        help="run a simulated model server with vLLM's or SGLang's metrics and fault knobs",
        epilog="Faults are changed while it runs: POST /admin/config with any of extra_ttft_ms, "
        "inter_token_factor, failure_injection_rate, failure_types, hang, metrics, probes, kv_events, crash; "
        "GET shows them. Engine sizes and costs: the `engine` section of the settings file, or "
        "GIR_ENGINE__MAX_NUM_SEQS and the like.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as YAML")
    parser.add_argument("--pod", metavar="NAME", help="name sent as x-inference-pod (default: pod-0)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="0 takes a free one (default: 8100)")
    parser.add_argument("--model", metavar="NAME", help="served model name (default: llama-3.1-8b)")
    parser.add_argument("--alias", action="append", metavar="NAME", help="a further served name; repeatable")
    parser.add_argument("--profile", metavar="NAME", help=f"one of {', '.join(PROFILES)} (default: h100-8b)")
    _add_engine_options(parser)
    _add_kv_event_options(parser)
    parser.add_argument(
        "--insecure-bind",
        action="store_true",
        default=None,
        help="allow an address other than loopback, without TLS",
    )


def _add_engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flavour",
        choices=[flavour.value for flavour in Flavour],
        help="the engine it poses as (default: vllm)",
    )
    parser.add_argument(
        "--engine-version", metavar="V", help="version it says it has (default: a current one)"
    )
    parser.add_argument(
        "--metric-names",
        choices=[names.value for names in MetricNames],
        help="vLLM's generation of metric names (default: that of its version)",
    )
    parser.add_argument(
        "--page-lines", type=int, metavar="N", help="make the metrics page at least this long"
    )
    parser.add_argument(
        "--lora", action="append", metavar="NAME", help="a LoRA adapter it serves; repeatable"
    )
    parser.add_argument(
        "--max-loras", type=int, metavar="N", help="adapters on the GPU at once (default: all)"
    )
    parser.add_argument(
        "--data-parallel-size", type=int, metavar="N", help="ranks behind the port (default: 1)"
    )
    parser.add_argument(
        "--startup-s", type=float, metavar="S", help="refuse connections this long, as while loading weights"
    )


def _add_kv_event_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-events", metavar="tcp://HOST:PORT", help="publish KV events there by ZeroMQ; rank r at PORT + r"
    )
    parser.add_argument(
        "--kv-replay", metavar="tcp://HOST:PORT", help="answer there for missed KV events; rank r at PORT + r"
    )
    parser.add_argument(
        "--kv-events-map", action="store_true", default=None, help="events as maps rather than arrays"
    )


def run(args: argparse.Namespace) -> int:
    """Run the pod until SIGINT or SIGTERM. 1 when its address cannot be had, 2 for wrong settings."""
    flags = {
        "pod": args.pod,
        "host": args.host,
        "port": args.port,
        "model": args.model,
        "aliases": args.alias,
        "profile": args.profile,
        "flavour": args.flavour,
        "version": args.engine_version,
        "metric_names": args.metric_names,
        "page_lines": args.page_lines,
        "loras": args.lora,
        "max_loras": args.max_loras,
        "data_parallel_size": args.data_parallel_size,
        "startup_s": args.startup_s,
        "kv_events.endpoint": args.kv_events,
        "kv_events.replay_endpoint": args.kv_replay,
        "kv_events.as_maps": args.kv_events_map,
        "insecure_bind": args.insecure_bind,
    }
    try:
        text = args.config.read_text() if args.config else ""
        source = str(args.config or "flags")
        settings = load_settings(PodSettings, text, source, os.environ, flags)
    except (OSError, UnicodeDecodeError) as error:
        print(f"gir simulate-pod: cannot read {args.config}: {error}", file=sys.stderr)
        return USAGE
    except SettingsError as error:
        for problem in error.problems:
            print(f"gir simulate-pod: {problem}", file=sys.stderr)
        return USAGE
    return uvloop.run(_serve(settings))


async def _serve(settings: PodSettings) -> int:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    try:
        pod = await start_pod(settings, SystemClock(), exit_process=lambda: os._exit(KILLED))
    except OSError as error:
        # Python appends the address, which the sentence has named already.
        why = str(error.strerror).partition(" (while")[0]
        print(
            f"gir simulate-pod: cannot listen on {settings.host} port {settings.port}: {why}", file=sys.stderr
        )
        return NO
    if settings.insecure_bind:
        print("gir simulate-pod: listening without TLS beyond loopback is allowed", file=sys.stderr)
    later = "" if pod.ready.is_set() else f" after {settings.startup_s:g} s of loading weights"
    print(f"{settings.pod} serves {settings.model} on http://{pod.address}/v1{later}", flush=True)
    for rank, (endpoint, replay) in enumerate(zip(pod.kv_endpoints, pod.kv_replay_endpoints, strict=True)):
        also = f", replay on {replay}" if replay else ""
        print(f"rank {rank} publishes KV events on {endpoint}{also}", flush=True)
    await told_to_stop.wait()
    await pod.stop()
    return DONE
