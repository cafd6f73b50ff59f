"""`gir apply`: checks configuration files and publishes them as the next policy revision.

Parses words, opens Kafka and prints; what a publication is stands in `services.control.publication`.
"""

import argparse
import asyncio
import json
import os
import sys

from services.adapters.kafka.publisher import KafkaBusPublisher
from services.adapters.kafka.reader import KafkaBusReader
from services.adapters.kafka.settings import KafkaSettings
from services.adapters.ports import BusPublisher, BusReader, Clock, RefusedError, Topic, UnreachableError
from services.adapters.system.clock import SystemClock
from services.cli.config_files import UnreadableFileError, add_files, print_problems, read_sources
from services.cli.exit_codes import DONE, NO, UNREACHABLE, USAGE
from services.control.publication import Publication, PublicationRefusedError, publish_policy
from services.core.policy import PolicySnapshot
from services.core.units import seconds
from services.wire.config.documents import Documents
from services.wire.config.field_types import host_port
from services.wire.config.load import InvalidDocumentsError, load, to_policy
from services.wire.errors import OversizeError
from services.wire.messages import MAX_TEXT_CHARS
from services.wire.policy_codec import MAX_REASON_CHARS

PUBLISH_TIMEOUT = seconds(10)
"""A cluster that cannot acknowledge within this is away as far as a person at a terminal is concerned."""

MAX_REVISION_DIGITS = 15
"""Every store on the way keeps such a number exactly."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb and its options."""
    parser = subparsers.add_parser(
        "apply",
        help="publish configuration files as the next policy revision",
        epilog="The files are the whole policy: what they leave out is no longer declared. Exits 0 when "
        "published, 1 when refused, 2 when a file cannot be read, 3 when Kafka cannot be reached.",
    )
    add_files(parser)
    parser.add_argument(
        "--kafka", required=True, type=_bootstrap, metavar="ADDR", help="host:port[,host:port...]"
    )
    parser.add_argument(
        "--replication",
        type=int,
        choices=range(1, 8),
        default=1,
        help="replicas of topics that do not exist yet (default: %(default)s)",
    )
    parser.add_argument(
        "--author", type=_author, default=os.environ.get("USER", ""), help="who publishes (default: $USER)"
    )
    parser.add_argument("--reason", type=_reason, default="", help="why, kept with the revision")
    parser.add_argument(
        "--revision",
        type=_revision,
        help="publish as this revision instead of the next one; it must lie above the newest. "
        "Needed only where the newest cannot be read",
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="(default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Check, publish, and print the new revision on stdout."""
    clock = SystemClock()
    try:
        documents = load(read_sources(args.files))
        print_problems(documents.warnings)
        _say_unpublished(documents)
        policy = to_policy(documents, 1, clock.wall_ms())
    except UnreadableFileError as error:
        print(f"gir apply: {error}", file=sys.stderr)
        return USAGE
    except InvalidDocumentsError as error:
        print_problems(error.problems)
        print("gir apply: nothing was published", file=sys.stderr)
        return NO
    return asyncio.run(_over_kafka(args, policy, clock))


async def apply(
    args: argparse.Namespace, policy: PolicySnapshot, reader: BusReader, publisher: BusPublisher, clock: Clock
) -> int:
    """Publish over any bus and print the outcome; return the exit code."""
    try:
        published = await publish_policy(
            policy,
            reader,
            publisher,
            clock,
            PUBLISH_TIMEOUT,
            author=args.author,
            reason=args.reason,
            revision=args.revision,
        )
    except (PublicationRefusedError, OversizeError, RefusedError) as error:
        print(f"gir apply: {error}", file=sys.stderr)
        return NO
    except UnreachableError as error:
        print(f"gir apply: {error}", file=sys.stderr)
        return UNREACHABLE
    print(_rendered(published, args.output))
    return DONE


async def _over_kafka(args: argparse.Namespace, policy: PolicySnapshot, clock: Clock) -> int:
    settings = KafkaSettings(args.kafka, client_id="gir-apply", replication_factor=args.replication)
    reader = KafkaBusReader(settings, [Topic.POLICY], clock)
    publisher = KafkaBusPublisher(settings, clock)
    await publisher.start()
    try:
        return await apply(args, policy, reader, publisher, clock)
    finally:
        await publisher.close()
        await reader.close()


def _say_unpublished(documents: Documents) -> None:
    """Name the documents that are no part of a policy, in one line; nobody should take them for published."""
    left = [
        *(f"InferenceGateway {each.value.metadata.name} ({each})" for each in documents.inference_gateways),
        *(f"Site ({each})" for each in documents.sites),
    ]
    if left:
        print(f"gir apply: not published, as no part of a policy: {', '.join(left)}", file=sys.stderr)


def _rendered(published: Publication, output: str) -> str:
    policy = published.policy
    if output == "json":
        return json.dumps(
            {
                "revision": policy.revision,
                "previous": published.previous,
                "clusters": len(policy.clusters),
                "models": len(policy.models),
                "tenants": len(policy.tenants),
            }
        )
    before = "the first" if published.previous is None else f"after {published.previous}"
    return (
        f"revision {policy.revision} published ({before}): {len(policy.clusters)} clusters, "
        f"{len(policy.models)} models, {len(policy.tenants)} tenants"
    )


def _bootstrap(value: str) -> str:
    try:
        return ",".join(host_port(address) for address in value.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}") from error


def _author(value: str) -> str:
    return _printable(value, MAX_TEXT_CHARS)


def _reason(value: str) -> str:
    return _printable(value, MAX_REASON_CHARS)


def _printable(value: str, max_chars: int) -> str:
    if len(value) > max_chars or not value.isprintable():
        raise argparse.ArgumentTypeError(f"must be one line of at most {max_chars} printable characters")
    return value


def _revision(value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > MAX_REVISION_DIGITS or int(value) < 1:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 1 on, of at most {MAX_REVISION_DIGITS} digits"
        )
    return int(value)
