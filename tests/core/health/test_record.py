from dataclasses import replace

import pytest

from services.core.fleet import HealthState, ReportId
from services.core.health.loads import NO_LOAD
from services.core.health.outliers import Outlier
from services.core.health.record import NOT_PROBED, RTTS_KEPT, ClusterRecord, ProbeMemory, informed, unknown
from services.core.locality import Jurisdiction, Locality, Region
from services.core.outcomes import DropReason
from services.core.units import ms
from tests.core.health.samples import START, at, record, report, spec


def test_a_good_probe_ends_the_run_of_failed_ones() -> None:
    memory = NOT_PROBED.missed().missed()
    assert (memory.failed, memory.failed_here, memory.good_here) == (2, 2, 0)
    memory = memory.answered(at(1), ms(20))
    assert memory == ProbeMemory(0, 0, 1, at(1), (ms(20),))
    assert memory.missed().good_here == 0


def test_a_new_state_counts_anew_but_remembers_failure() -> None:
    assert NOT_PROBED.missed().counted_anew() == ProbeMemory(failed=1)
    assert NOT_PROBED.answered(at(1), ms(1)).counted_anew().good_here == 0
    assert NOT_PROBED.counted_anew() is NOT_PROBED


def test_few_round_trips_are_kept() -> None:
    memory = NOT_PROBED
    for number in range(RTTS_KEPT + 5):
        memory = memory.answered(at(number), ms(number))
    assert memory.rtts == tuple(ms(number) for number in range(5, RTTS_KEPT + 5))


ABROAD = Locality(Region("us"), Jurisdiction("us"))


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (record(), None),
        (replace(record(), reported_from=record().spec.locality), None),
        (record(HealthState.UNHEALTHY), DropReason.NO_HEALTHY_CLUSTER),
        (replace(record(), outlier=Outlier(ejected_until=at(1))), DropReason.NO_HEALTHY_CLUSTER),
        (replace(record(), draining=True), DropReason.DRAINED),
        (replace(record(), reported_from=ABROAD), DropReason.REPORT_POLICY_MISMATCH),
    ],
)
def test_an_exclusion_is_whatever_must_act_at_once(
    candidate: ClusterRecord, expected: DropReason | None
) -> None:
    assert candidate.exclusion is expected


def test_a_report_informs_without_touching_state_or_silence() -> None:
    before = unknown(spec("a"), START)
    after = informed(before, report("a", 3, region="mars", draining=True), NO_LOAD, at(2))
    assert after.report_id == ReportId(1, 3)
    assert after.draining
    assert after.policy_mismatch
    assert (after.state, after.silent, after.quiet_since) == (before.state, before.silent, before.quiet_since)
    again = informed(after, report("a", 4, region="mars"), NO_LOAD, at(3))
    assert again.reported_from is after.reported_from
    assert not again.draining
    home = informed(again, report("a", 5), NO_LOAD, at(4))
    assert not home.policy_mismatch
    elsewhere = informed(home, replace(report("a", 6), jurisdiction=Jurisdiction("us")), NO_LOAD, at(5))
    assert elsewhere.policy_mismatch


def test_a_cluster_fails_from_its_first_failed_probe_to_its_next_good_one() -> None:
    memory = NOT_PROBED.missed()
    assert replace(record(), probes=memory).failing
    assert not replace(record(), probes=memory.answered(START, ms(1))).failing
