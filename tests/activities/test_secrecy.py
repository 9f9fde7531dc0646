"""I8: no secret value in any log, error, heartbeat, signal or result."""

import logging
from pathlib import Path
from typing import Any

import pytest

from api_types.errors import ModelplaneError
from testbed.testbed import Running
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import ClusterUnderTest, cluster_from, eventually
from tests.activities.render.builders import an_engine

pytestmark = pytest.mark.testbed

CLUSTER = "prod-eu"


def _secrets(kubeconfig: str) -> list[str]:
    tree = operator.kubeconfig_of(kubeconfig)
    found: list[str] = [value for entry in tree["users"] for value in entry["user"].values()]
    # Pieces too: a wrapped or cut value would be found by no search for the whole.
    return [piece for value in found for piece in {value[:60], value[len(value) // 2 :][:60], value}]


async def test_a_replica_from_apply_to_teardown_reveals_no_secret(
    testbed: Running, cluster: ClusterUnderTest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubeconfig = testbed.clusters[CLUSTER].kubeconfig.read_text()
    token = await operator.token_of(cluster, "default", "teller")
    said: list[Any] = []
    with caplog.at_level(logging.DEBUG):
        for number, text in enumerate(
            (kubeconfig, operator.with_token(kubeconfig, token), operator.without_user(kubeconfig), f"{kubeconfig}\n  - {token}")
        ):
            one = await cluster_from(CLUSTER, text, tmp_path / str(number))
            one.facts = cluster.facts
            said.append(await _live(one))
            said += [one.heartbeats, repr(one.pool), repr(one.connection), await one.store.list()]
            await one.pool.close()
    told = "\n".join([caplog.text, *map(repr, said)])
    assert "ClusterFacts" in told, "the search looked at something"
    assert [secret[:20] for secret in [*_secrets(kubeconfig), token, token[:60], "nobody-issued-this-token"] if secret in told] == []


async def _live(cluster: ClusterUnderTest) -> list[Any]:
    said: list[Any] = []
    order = cluster.order([an_engine()])
    try:
        async with cluster.watching() as client:
            said.append(await cluster.connect())
            applied = await cluster.apply(order)
            await eventually(lambda: client.signals)
            said += [applied, client.signals, await cluster.tear_down(order, applied)]
    except ModelplaneError as error:
        said += [error, error.message, error.details, error.__cause__, error.__context__]
    return said
