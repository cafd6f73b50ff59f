"""Client channels to our own services: one connection, bounded, noticed when it dies.

Addresses come from configuration and policy. The proxy variables of the environment and service
configuration from DNS are not followed: an address in the policy is where the call goes.
"""

import grpc

from services.adapters.grpc.server import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES, MIN_PING_INTERVAL_MS

KEEPALIVE_INTERVAL_MS = 2 * MIN_PING_INTERVAL_MS
KEEPALIVE_TIMEOUT_MS = 2_000
"""A peer that answers no ping for this long is gone, whatever TCP still believes."""
RECONNECT_FIRST_MS = 100
RECONNECT_MAX_MS = 2_000
"""At most 2 s, so that a picker that came back is used at once."""


def open_channel(address: str) -> grpc.aio.Channel:
    """Return a channel to `host:port`; it connects with its first call. The caller closes it."""
    return grpc.aio.insecure_channel(
        address,
        options=(
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
            ("grpc.min_reconnect_backoff_ms", RECONNECT_FIRST_MS),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MAX_MS),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config_disable_resolution", 1),
        ),
    )
