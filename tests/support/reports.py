"""Small valid reports for tests that move them rather than read them."""

from services.core.fleet import HealthReport, PodRecord, PodsReport, PodState, PoolReport, ReportId
from services.core.inference import ModelName
from services.core.locality import ClusterId, Jurisdiction, Region
from services.core.policy import PolicySnapshot
from services.core.units import WallMs
from services.wire.health_codec import encode_report
from services.wire.pods_codec import encode_pods
from services.wire.policy_codec import encode_policy


def health_bytes(cluster: str, epoch: int, sequence: int) -> bytes:
    """Return an encoded health report of one pool."""
    return encode_report(
        HealthReport(
            ClusterId(cluster),
            ReportId(epoch, sequence),
            Region("eu-west"),
            Jurisdiction("eu"),
            WallMs(1_750_000_000_000),
            (PoolReport("pool", ModelName("llama"), ready_endpoints=2, total_endpoints=2),),
        )
    )


def pods_bytes(cluster: str, pool: str, epoch: int, sequence: int) -> bytes:
    """Return an encoded pod list of one pod."""
    pod = PodRecord("pod-0", "127.0.0.1:8100", PodState.READY, "vllm", "0.10.0", WallMs(1_750_000_000_000))
    return encode_pods(PodsReport(ClusterId(cluster), pool, ReportId(epoch, sequence), (pod,)))


def policy_bytes(revision: int) -> bytes:
    """Return an encoded policy that declares nothing."""
    return encode_policy(PolicySnapshot(revision, WallMs(1_750_000_000_000)))
