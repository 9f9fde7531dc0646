"""Metrics of deployments are stored, returned until they expire, and then an error.

With an error, an autoscaler keeps the replicas.
"""

import base64
from datetime import timedelta
from typing import Any

import pytest

from front.scaling import numbers
from front.scaling.numbers import Numbers, Told
from front.store.projection import ObjectKey
from tests.front.scaling.scaling_under_test import (
    ACCESS,
    AGE_MAX,
    NOW,
    TOKEN,
    Client,
    Json,
    ScalingUnderTest,
    a_deployment,
    asked,
    path_of,
)

PATH = path_of("chat", "metrics")
MINE = {"Authorization": f"Bearer {TOKEN}"}
BUSY = {"queueDepth": 12, "runningRequests": 3.5}


async def test_metrics_are_returned_until_they_expire(
    served: ScalingUnderTest, client: Client
) -> None:
    status, answer = await asked(client, "GET", PATH, **MINE)
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert (
        "has no metrics yet; send them with "
        "PUT /v1/namespaces/a/modeldeployments/chat/metrics" in answer["message"]
    )
    shown = {**BUSY, "replicas": 2, "observedAt": NOW.isoformat()}
    assert await asked(client, "PUT", PATH, BUSY, **MINE) == (200, shown)
    served.now += AGE_MAX
    assert await asked(client, "GET", PATH, **MINE) == (200, shown)
    served.now += timedelta(seconds=1)
    status, answer = await asked(client, "GET", PATH, **MINE)
    assert status == 503
    assert (
        "its metrics are from 2026-05-04T03:02:01Z, older than 120 s"
        in answer["message"]
    )
    assert (await asked(client, "GET", path_of("code", "metrics"), **MINE))[0] == 503


async def test_a_missing_metric_is_absent_instead_of_zero(client: Client) -> None:
    _, answer = await asked(client, "POST", PATH, {"queueDepth": 0}, **MINE)
    assert {key: answer[key] for key in answer if key != "observedAt"} == {
        "queueDepth": 0,
        "replicas": 2,
    }


async def test_the_later_of_two_metrics_wins(
    served: ScalingUnderTest, client: Client
) -> None:
    for seconds, depth in ((60, 1), (30, 2), (90, 3)):
        observed = (NOW - timedelta(seconds=seconds)).isoformat()
        await asked(
            client, "PUT", PATH, {"queueDepth": depth, "observedAt": observed}, **MINE
        )
    assert (await asked(client, "GET", PATH, **MINE))[1]["queueDepth"] == 2
    served.now += timedelta(seconds=91)
    assert (await asked(client, "GET", PATH, **MINE))[0] == 503


async def test_a_recreated_deployment_starts_without_metrics(
    served: ScalingUnderTest, client: Client
) -> None:
    await asked(client, "PUT", PATH, BUSY, **MINE)
    later = a_deployment("chat", uid="later")
    later["metadata"]["resourceVersion"] = "2000"
    served.projection.put(ObjectKey("ModelDeployment", "a", "chat"), later)
    assert (await asked(client, "GET", PATH, **MINE))[0] == 503
    # Metrics of the new object are accepted, even if those of its predecessor are
    # newer.
    observed = (NOW - timedelta(seconds=60)).isoformat()
    assert (
        await asked(
            client, "PUT", PATH, {"queueDepth": 1, "observedAt": observed}, **MINE
        )
    )[0] == 200
    assert (await asked(client, "GET", PATH, **MINE))[1]["queueDepth"] == 1


async def test_metrics_from_a_fast_clock_count_as_current(client: Client) -> None:
    ahead = (NOW + timedelta(seconds=20)).isoformat()
    assert (await asked(client, "PUT", PATH, {**BUSY, "observedAt": ahead}, **MINE))[1][
        "observedAt"
    ] == NOW.isoformat()
    # So they do not displace later metrics.
    assert (await asked(client, "PUT", PATH, {"queueDepth": 1}, **MINE))[1][
        "queueDepth"
    ] == 1


async def test_only_some_of_many_unknown_fields_are_reported(client: Client) -> None:
    _, answer = await asked(
        client,
        "PUT",
        PATH,
        {**BUSY, **{f"field{number}": 1 for number in range(1_000)}},
        **MINE,
    )
    assert len(answer["details"]["causes"]) == 10


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        ({}, {"queueDepth": "one of queueDepth, runningRequests is required"}),
        (
            {"queueDepth": -1},
            {"queueDepth": "must be a number between 0 and 1000000000000, got -1"},
        ),
        (
            {"queueDepth": True, "runningRequests": "3"},
            {"queueDepth": "got True", "runningRequests": "got '3'"},
        ),
        ({"queueDepth": 1e13}, {"queueDepth": "between 0 and"}),
        (
            {"queuedepth": 1},
            {"'queuedepth'": "use queueDepth", "queueDepth": "is required"},
        ),
        (
            {"queueDepth": 1, "observedAt": "now"},
            {"observedAt": "RFC 3339 time such as 2026-05-04T03:02:01Z, got 'now'"},
        ),
        (
            {"queueDepth": 1, "observedAt": "2026-05-04T03:02:01"},
            {"observedAt": "RFC 3339"},
        ),
        (
            {"queueDepth": 1, "observedAt": "2026-05-04T03:02:32Z"},
            {"observedAt": "must not be in the future"},
        ),
        (
            {"queueDepth": 1, "observedAt": "2026-05-04T03:00:00Z"},
            {"observedAt": "must be at most 120 s ago"},
        ),
    ],
    ids=str,
)
async def test_all_errors_of_metrics_are_reported_at_once(
    client: Client, body: Json, causes: Json
) -> None:
    status, answer = await asked(client, "PUT", PATH, body, **MINE)
    assert status == 422
    told = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    assert told.keys() == causes.keys()
    assert all(causes[field] in told[field] for field in causes), told
    assert (await asked(client, "GET", PATH, **MINE))[0] == 503


async def test_a_token_is_accepted_in_every_form_that_keda_supports(
    client: Client,
) -> None:
    basic = base64.b64encode(f"ann:{TOKEN}".encode()).decode()
    for headers in (MINE, {"X-API-KEY": TOKEN}, {"Authorization": f"Basic {basic}"}):
        assert (await asked(client, "PUT", PATH, BUSY, **headers))[0] == 200
    both = {**MINE, "X-API-KEY": TOKEN}
    for headers in (
        {},
        both,
        {"X-API-KEY": "x"},
        {"Authorization": "Basic x"},
        {"Authorization": f"Basic {base64.b64encode(b'x').decode()}"},
    ):
        assert (await asked(client, "PUT", PATH, BUSY, **headers))[0] == 401
    # The Kubernetes API accepts tokens only as Kubernetes clients send them.
    assert (
        await asked(
            client,
            "GET",
            "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments",
            **{"X-API-KEY": TOKEN},
        )
    )[0] == 401


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_the_error_without_rights_does_not_reveal_existence(
    client: Client, method: str
) -> None:
    told = set()
    for name in ("chat", "none"):
        status, answer = await asked(
            client,
            method,
            path_of(name, "metrics", "b"),
            BUSY if method == "PUT" else None,
            **MINE,
        )
        told.add((status, answer["message"].replace(f'"{name}"', "x")))
    assert len(told) == 1
    assert next(iter(told))[0] == 403
    assert (
        await asked(
            client,
            method,
            path_of("none", "metrics"),
            BUSY if method == "PUT" else None,
            **MINE,
        )
    )[0] == 404


async def test_the_right_to_read_metrics_does_not_allow_writes(
    served: ScalingUnderTest, client: Client
) -> None:
    assert (await asked(client, "PUT", PATH, BUSY, **MINE))[0] == 200
    (served.folder / "access.yaml").write_text(
        ACCESS.replace("verbs: [get, update, create]", "verbs: [get]")
    )
    for method in ("PUT", "POST"):
        assert (await asked(client, method, PATH, {"queueDepth": 99}, **MINE))[0] == 403
    status, answer = await asked(client, "GET", PATH, **MINE)
    assert (status, answer["queueDepth"]) == (200, BUSY["queueDepth"])


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_clients_retry_before_the_first_listing(
    served: ScalingUnderTest, client: Client, method: str
) -> None:
    served.projection.complete = False
    status, answer = await asked(
        client,
        method,
        path_of("none", "metrics"),
        BUSY if method == "PUT" else None,
        **MINE,
    )
    assert (status, answer["details"]) == (503, {"retryAfterSeconds": 1})


async def test_other_methods_and_large_bodies_are_rejected(client: Client) -> None:
    assert (await asked(client, "DELETE", PATH, **MINE))[0] == 405
    assert (await asked(client, "PUT", PATH, b" " * 70_000, **MINE))[0] == 413


def test_old_metrics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_PRUNE_FROM", 2)
    now: list[Any] = [NOW]
    told = Told(AGE_MAX, lambda: now[0])
    for number in range(50):
        now[0] += timedelta(minutes=5)
        told.tell(
            ObjectKey("ModelDeployment", "a", str(number)),
            Numbers(str(number), now[0], {}),
        )
    assert len(told._numbers) <= 3
