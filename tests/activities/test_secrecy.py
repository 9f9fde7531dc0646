"""No secret value appears in any log, error, heartbeat, signal or result."""

import logging
from pathlib import Path
from typing import Any

import pytest

from api_types.errors import ModelplaneError
from testbed.running import Running
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    cluster_from,
    eventually,
)
from tests.activities.render.builders import an_engine

pytestmark = pytest.mark.testbed("shared")

CLUSTER = "prod-eu"


def _secrets(kubeconfig: str) -> list[str]:
    tree = operator.kubeconfig_of(kubeconfig)
    found: list[str] = [
        value for entry in tree["users"] for value in entry["user"].values()
    ]
    # Parts count too: a search for the whole value would not find a wrapped or
    # truncated one.
    return [
        piece
        for value in found
        for piece in {value[:60], value[len(value) // 2 :][:60], value}
    ]


async def test_a_replica_from_apply_to_teardown_reveals_no_secret(
    testbed: Running,
    cluster: ClusterUnderTest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kubeconfig = testbed.clusters[CLUSTER].kubeconfig.read_text()
    token = await operator.token_of(cluster, "default", "teller")
    results: list[Any] = []
    with caplog.at_level(logging.DEBUG):
        for number, text in enumerate(
            (
                kubeconfig,
                operator.with_token(kubeconfig, token),
                operator.without_user(kubeconfig),
                f"{kubeconfig}\n  - {token}",
            )
        ):
            one = await cluster_from(CLUSTER, text, tmp_path / str(number))
            one.facts = cluster.facts
            results.append(await _run_replica(one))
            results += [
                one.heartbeats,
                repr(one.pool),
                repr(one.connection),
                await one.store.list(),
            ]
            await one.pool.close()
    output = "\n".join([caplog.text, *map(repr, results)])
    assert "ClusterFacts" in output, "the search covers the results"
    assert [
        secret[:20]
        for secret in [*_secrets(kubeconfig), token, token[:60], "never-issued-token"]
        if secret in output
    ] == []


async def _run_replica(cluster: ClusterUnderTest) -> list[Any]:
    results: list[Any] = []
    order = cluster.order([an_engine()])
    try:
        async with cluster.watching() as client:
            results.append(await cluster.connect())
            applied = await cluster.apply(order)
            await eventually(lambda: client.signals)
            results += [
                applied,
                client.signals,
                await cluster.tear_down(order, applied),
            ]
    except ModelplaneError as error:
        results += [
            error,
            error.message,
            error.details,
            error.__cause__,
            error.__context__,
        ]
    return results
