"""Rows of a running world: each cluster as its own region's router sees it.

Reads the routers' own objects, changes nothing. How rows look is `table`.
"""

from services.core.units import NS_PER_MS
from services.global_router.fleet_board import ClusterStatus
from services.worlds.demo_world import World
from services.worlds.table import ClusterRow, DoorRow, endpoints, flags, known_sum


def door_rows(world: World) -> list[DoorRow]:
    """Return the doors that are open."""
    return [
        DoorRow(
            name, region.router.http_port, region.router.life.tallies.requests, len(region.router.life.live)
        )
        for name, region in world.regions.items()
    ]


def cluster_rows(world: World) -> list[ClusterRow]:
    """Return every cluster as its own region's router sees it, or another one while that is gone."""
    rows = []
    now = world.clock.now()
    seen = {
        name: {status.candidate.id: status for status in region.router.board.statuses(now)}
        for name, region in world.regions.items()
    }
    for spec in world.plan.policy.clusters:
        region = spec.locality.region
        found = [statuses[spec.id] for statuses in _nearest_first(seen, region) if spec.id in statuses]
        if not found:
            continue
        candidate, pools = found[0].candidate, found[0].pools
        ready, total = endpoints(pools)
        by_name = {pool.pool: pool for pool in pools}.values()
        silence = found[0].silence
        rows.append(
            ClusterRow(
                spec.id,
                region,
                spec.locality.jurisdiction,
                candidate.state,
                flags(
                    draining=candidate.draining,
                    ejected=candidate.ejected,
                    mismatch=candidate.policy_mismatch,
                ),
                ready,
                total,
                known_sum(pool.running for pool in by_name),
                known_sum(pool.waiting for pool in by_name),
                None if silence is None else silence // NS_PER_MS,
                candidate.ramp,
            )
        )
    return rows


def _nearest_first(seen: dict[str, dict[str, ClusterStatus]], region: str) -> list[dict[str, ClusterStatus]]:
    return [
        *(seen[name] for name in seen if name == region),
        *(seen[name] for name in seen if name != region),
    ]
