import pytest

from services.wire.config.load import load
from services.wire.config.site import PodSite, SiteSpec
from tests.wire.config import example


def test_a_site_says_what_this_host_starts() -> None:
    spec = load(example.EVERYTHING).sites[0].value.spec
    assert spec.state_dir == "/var/lib/gir"
    assert spec.kafka is not None
    assert (spec.kafka.bootstrap, spec.kafka.replication) == (("127.0.0.1:9092",), 1)
    assert spec.redis is not None
    assert spec.redis.url == "redis://127.0.0.1:6379/0"
    west, east = spec.regions
    assert (west.region, west.jurisdiction, west.host) == ("eu-west", "eu", "127.0.0.1")
    assert (west.http_port, west.grpc_port) == (8080, 7000)
    assert (east.http_port, east.grpc_port) == (8180, 0)
    first, second = spec.pickers
    assert (first.cluster, first.accept, second.accept) == ("eu-west-a", "router", "direct")
    assert first.pools[1].pods == (PodSite(id="mistral-0", address="127.0.0.1:8100"),)
    assert (second.pools[0].simulated_pods, second.pools[0].simulated_profile) == (1, "a10-8b")


def test_an_empty_site_is_embedded_and_binds_loopback() -> None:
    spec = SiteSpec()
    assert spec.kafka is None
    assert spec.redis is None
    assert not spec.insecure_bind


@pytest.mark.parametrize(
    ("old", "new", "path", "rule"),
    [
        ('{bootstrap: ["127.0.0.1:9092"]}', "", "spec.kafka", "must not be null"),
        ('["127.0.0.1:9092"]', "[]", "spec.kafka.bootstrap", "at least 1 item"),
        ('["127.0.0.1:9092"]', "127.0.0.1:9092", "spec.kafka.bootstrap", "must be a list"),
        ("redis://127", "http://127", "spec.redis.url", "must be a redis://"),
        ("/var/lib/gir", "' '", "spec.stateDir", "must be a path"),
        ("accept: direct", "accept: all", "spec.pickers[1].accept", "'router' or 'direct'"),
        ("httpPort: 8180", "httpPort: 70000", "spec.regions[1].httpPort", "less than or equal to 65535"),
        ("simulatedPods: 2", "simulatedPods: 1000", "spec.pickers[0].pools[0].simulatedPods", "64"),
        ("engine: vllm", "engine: tgi", "spec.pickers[0].pools[1].engine", "'vllm' or 'sglang'"),
    ],
)
def test_wrong_sites_are_refused_by_path(old: str, new: str, path: str, rule: str) -> None:
    assert old in example.SITE
    problems = load(example.EVERYTHING.replace(old, new)).errors
    assert [(problem.path, rule in problem.rule) for problem in problems] == [(path, True)]


def test_a_wrong_address_with_a_password_does_not_show_it() -> None:
    text = example.EVERYTHING.replace("redis://127", "htp://user:CANARY@127")
    (problem,) = load(text).errors
    assert "CANARY" not in str(problem)
