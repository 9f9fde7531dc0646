"""Requests to a ModelService through Envoy: failing endpoints, weights and no endpoint."""

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from api_types import names
from api_types.messages.gateway_work import RouteTimeouts
from front.page_data import prometheus
from tests.testbed.request_path.request_path import (
    NAMESPACE,
    RequestPath,
    eventually,
)
from tests.testbed.request_path.service_path import Answer, Endpoints, ServicePath

pytestmark = [pytest.mark.testbed, pytest.mark.soak]
OK = 200


@pytest.fixture(scope="session")
def services(path: RequestPath) -> ServicePath:
    return ServicePath(path)


@pytest.fixture
def endpoints(services: ServicePath) -> Iterator[Endpoints]:
    with services.endpoints() as running:
        yield running


def counted(text: str, metric: str, service: str) -> float:
    """Return the sum of a metric of a service in a page of Envoy's metrics."""
    route = names.service_route_name(NAMESPACE, service)
    own = f'envoy_cluster_name="httproute/{NAMESPACE}/{route}/rule/0"'
    lines = [line for line in text.splitlines() if own in line]
    found = [line for line in lines if re.match(rf"{metric}{{", line)]
    assert found, f"Envoy has no {metric} for {route}"
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_envoy_counts_requests_retries_and_ejections_of_a_service(
    services: ServicePath, endpoints: Endpoints
) -> None:
    endpoints.set("counted-good")
    endpoints.set("counted-bad", "503")
    where = services.apply("counted", endpoints, ["counted-good", "counted-bad"])
    services.until_served(where)
    services.ask(where, 50)
    # Envoy adds durations to its histograms after some seconds.
    eventually(
        lambda: counted(services.metrics(), prometheus.DURATIONS, "counted") >= 51,
        "the durations of the requests",
    )
    metrics = services.metrics()
    assert counted(metrics, prometheus.COMPLETED, "counted") >= 51
    assert counted(metrics, prometheus.BY_CLASS, "counted") >= 51
    assert counted(metrics, prometheus.RETRIED, "counted") >= 1
    assert counted(metrics, prometheus.EJECTED, "counted") == 1


def failed(answers: list[Answer]) -> list[Answer]:
    return [each for each in answers if each.status != OK]


def hosts(answers: list[Answer]) -> Counter[str]:
    return Counter(each.host.partition(".")[0] for each in answers)


@pytest.mark.parametrize("fault", ["429", "503", "500", "reset", "refused", "slow"])
def test_no_request_fails_while_an_endpoint_is_healthy(
    services: ServicePath, endpoints: Endpoints, fault: str
) -> None:
    name = f"fault-{fault}"
    good, bad = f"{name}-good", f"{name}-bad"
    for each in (good, bad):
        endpoints.set(each)
    path = services.apply(
        name,
        endpoints,
        [good, bad],
        timeouts=RouteTimeouts(backend_request="2s"),
    )
    services.until_served(path)
    assert set(hosts(services.ask(path))) == {good, bad}
    endpoints.set(bad, fault)
    answers = services.ask(path)
    assert failed(answers) == []
    assert set(hosts(answers)) == {good}


def test_the_standby_serves_while_the_first_entry_fails(
    services: ServicePath, endpoints: Endpoints
) -> None:
    for each in ("standby-first", "standby-second"):
        endpoints.set(each)
    path = services.apply(
        "standby", endpoints, ["standby-first"], standby=["standby-second"]
    )
    services.until_served(path)
    assert set(hosts(services.ask(path))) == {"standby-first"}
    endpoints.set("standby-first", "503")
    answers = services.ask(path)
    assert failed(answers) == []
    assert set(hosts(answers)) == {"standby-second"}


def test_requests_follow_the_weights_of_entries(
    services: ServicePath, endpoints: Endpoints
) -> None:
    for each in ("weights-stable-1", "weights-stable-2", "weights-canary"):
        endpoints.set(each)
    path = services.apply(
        "weights",
        endpoints,
        ["weights-stable-1", "weights-stable-2"],
        ["weights-canary"],
        weights=[90, 10],
    )
    services.until_served(path)
    found = hosts(services.ask(path, 2000, 20))
    assert found["weights-canary"] == pytest.approx(200, abs=60), found
    assert found["weights-stable-1"] == pytest.approx(900, abs=150), found


def test_an_endpoint_gets_its_host_and_the_path_below_the_service(
    services: ServicePath, endpoints: Endpoints
) -> None:
    endpoints.set("plain-one")
    path = services.apply("plain", endpoints, ["plain-one"])
    services.until_served(path)
    (answer,) = services.ask(path, 1)
    assert answer.host == names.endpoint_host(NAMESPACE, "plain-one")
    assert json.loads(answer.body)["path"] == "/v1/chat"


def test_a_service_without_endpoints_answers_503_in_the_form_of_openai(
    services: ServicePath, endpoints: Endpoints
) -> None:
    path = services.apply("empty", endpoints)
    eventually(lambda: services.ask(path, 1)[0].status == 503, "a 503")
    (answer,) = services.ask(path, 1)
    assert answer.retry_after == "5"
    assert json.loads(answer.body)["error"]["type"] == "service_unavailable"
