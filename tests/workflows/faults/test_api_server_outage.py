"""The control plane of a cluster stops and returns a minute later, in the middle of a
rollout and of a teardown.
"""

import pytest

from testbed.testbed import Testbed
from tests.environment.stopped_parts import stopped
from tests.workflows.environment.harness import ControlPlane, Json
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    a_tenant,
    clean_up,
    here,
    says_unreachable,
    the_replica,
    went_on,
)

pytestmark = pytest.mark.testbed

OUTAGE_SECONDS = 60.0


PARTS = tuple(
    f"{CLUSTER}.{part}"
    for part in (
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
        "lws",
    )
)


def with_slow_pods(document: Json) -> Json:
    """Let pods terminate slowly, so that the outage starts before they are gone."""
    (engine,) = document["spec"]["template"]["spec"]["engines"]
    engine["members"][0]["template"]["metadata"] = {
        "annotations": {"testbed.modelplane.ai/delete-after": "8s"}
    }
    return document


@pytest.mark.soak
async def test_a_minute_without_api_server_only_delays_a_rollout_and_a_teardown(
    plane: ControlPlane, testbed_owner: Testbed
) -> None:
    namespace = a_tenant()
    await plane.apply(here("rolling", namespace))
    await plane.apply(with_slow_pods(here("leaving", namespace)))
    await plane.ready("ModelDeployment", "rolling", namespace)
    await plane.ready("ModelDeployment", "leaving", namespace)
    rolling, leaving = (
        await the_replica(plane, "rolling", namespace),
        await the_replica(plane, "leaving", namespace),
    )
    # Both are in progress when the server stops.
    await plane.apply(here("rolling", namespace, image="registry.example/engine:2"))
    await plane.delete("ModelDeployment", "leaving", namespace)
    async with stopped(testbed_owner, plane.running.home, PARTS, OUTAGE_SECONDS):
        # A rollout that was applied before the outage would have nothing to report. The
        # next one cannot be applied.
        await plane.apply(here("rolling", namespace, image="registry.example/engine:3"))
        await says_unreachable(plane, namespace, rolling, leaving)
    await went_on(plane, namespace, "registry.example/engine:3")
    await clean_up(plane, "rolling", namespace)
