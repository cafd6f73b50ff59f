"""Metrics of the prefix indexes: their size, what they find, and what reaches or fails to reach them.

Label values come from closed sets, never from requests or pods.
"""

from typing import Final

from services.adapters.metric_names.spec import MetricSpec, counter, gauge

PICKER_PREFIX_ENTRIES: Final = "gir_picker_prefix_entries"
PICKER_PREFIX_BYTES: Final = "gir_picker_prefix_bytes"
PICKER_PREFIX_LOOKUPS: Final = "gir_picker_prefix_lookups_total"
PICKER_PREFIX_BLOCKS: Final = "gir_picker_prefix_blocks_total"
PICKER_PREFIX_DROPPED: Final = "gir_picker_prefix_dropped_total"
PICKER_PREFIX_FEED_CONNECTED: Final = "gir_picker_prefix_feed_connected"
PICKER_KV_EVENT_BATCHES: Final = "gir_picker_kv_event_batches_total"
PICKER_KV_REPLAYS: Final = "gir_picker_kv_replays_total"
PICKER_TOKENIZATIONS: Final = "gir_picker_tokenizations_total"

SPECS: Final[tuple[MetricSpec, ...]] = (
    gauge(
        PICKER_PREFIX_ENTRIES,
        ("index",),
        "Blocks held, one per (pod, block).",
        "At its bound and hit rate falling: the pods' caches are larger than what is remembered of them.",
    ),
    gauge(
        PICKER_PREFIX_BYTES,
        ("index",),
        "Memory of the index, estimated from its entries.",
        "Bounded by settings; lower the bound if the process is too large.",
        unit="bytes",
    ),
    counter(
        PICKER_PREFIX_LOOKUPS,
        ("result",),
        "Prompts looked up, by whether any pod holds their first block.",
        "Few hits: prompts share nothing, or pods come and go.",
    ),
    counter(
        PICKER_PREFIX_BLOCKS,
        ("what",),
        "Blocks of looked-up prompts, and those the best pod held.",
        "Matched over looked up is the hit rate that the caches allow.",
    ),
    counter(
        PICKER_PREFIX_DROPPED,
        ("what",),
        "Placements not recorded or not shared because too many waited or the feed was away, and batches none could read.",
        "`record` rising: the process lacks CPU; `announce`: the feed is slow or away; `unreadable`: secrets differ.",
    ),
    gauge(
        PICKER_PREFIX_FEED_CONNECTED,
        (),
        "1 while placements are shared with the other pickers.",
        "0: each picker knows only what it sent itself.",
    ),
    counter(
        PICKER_KV_EVENT_BATCHES,
        ("result",),
        "Batches of KV events, by what became of them.",
        "`lost`: the subscription drops messages; `malformed`: an engine of an unknown version.",
    ),
    counter(
        PICKER_KV_REPLAYS,
        ("result",),
        "Replays of KV events asked for, by how they ended.",
        "Failures: the replay port is closed, and gaps are accepted.",
    ),
    counter(
        PICKER_TOKENIZATIONS,
        ("result",),
        "Prompts turned into token ids, by where they came from.",
        "`absent` rising: servers answer too late, and the approximate index serves.",
    ),
)
