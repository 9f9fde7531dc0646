"""Every message between the entities arrives twice at once and again later, on a real
Temporal server.
"""

from collections import Counter
from typing import Any

import pytest

from api_types import names
from api_types.messages import signals
from tests.workflows.environment import protocol_fleet
from tests.workflows.environment.doubled_signals import doubling
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_cache,
    a_deployment,
    condition,
    eventually,
)
from tests.workflows.environment.protocol_fleet import nodes_charged
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    simulated_plane,
)
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)

pytestmark = [pytest.mark.soak, pytest.mark.testbed("shared")]

NAMESPACE = "ml"
# This life does not send signals of users, of preemption, of unused reservations, of
# watches that miss a replica or find rotated Secrets, of stack upgrades (see
# `tests/workflows/stack_upgrades`), or of cloud clusters (see
# `tests/workflows/cloud_cluster`).
NOT_SENT_HERE = {
    "force",
    "retry_now",
    "set_policy",
    "evict",
    "revoke",
    "revoked",
    "check_replicas",
    "secrets_changed",
    "cancel_requested",
}
NOT_SENT_HERE |= {
    "record_event",
    "force_finalizer",
    "request_upgrade",
    "upgrade_turn",
    "cloud_reported",
}
RECEIVERS = (
    *signals.ENTITIES,
    signals.FleetSchedulerSignals,
    signals.EndpointDirectorySignals,
    signals.StackUpgradesSignals,
)
ALL = {name for receiver in RECEIVERS for name in signals.signals_of(receiver)}


def a_model(**more: Any) -> Json:
    return a_deployment("qwen", NAMESPACE, modelCacheRef={"name": "weights"}, **more)


async def placed(plane: ControlPlane, count: int, image: str) -> dict[str, str]:
    """Wait until `count` replicas are Ready with the newest template and charged once each.

    Return the cluster of each.
    """

    def holds(seen: Json) -> bool:
        shown = seen.get("status", {}).get("replicas")
        return (
            condition(seen, "Ready") == "True"
            and shown == {"total": count, "ready": count}
            and image in str(seen["spec"])
        )

    seen = await plane.until("ModelDeployment", "qwen", holds, NAMESPACE)

    async def ledger() -> dict[str, str]:
        return {
            entry["name"]: entry["cluster"] for entry in await plane.scheduler("ledger")
        }

    shown = {
        placement["replica"]: placement["cluster"]
        for placement in seen["status"]["placements"]
    }
    await eventually(ledger, lambda found: found == shown, what="the ledger")
    assert nodes_charged(await plane.scheduler("ledger")).total() == count
    assert await plane.scheduler("audit") == []
    return shown


async def routed(plane: ControlPlane, *endpoints: str) -> None:
    """Wait until the service routes exactly these endpoints."""

    def holds(seen: Json) -> bool:
        return sorted(
            each["name"] for each in seen["status"].get("endpoints", ())
        ) == sorted(endpoints)

    await plane.until("ModelService", "qwen", holds, NAMESPACE)


async def test_doubled_messages_do_not_change_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: Counter[str] = Counter()
    monkeypatch.setattr(protocol_fleet, "RetriedQueries", doubling(sent))
    control = SimulatedControl(settings={"drain_seconds": 1})
    async with simulated_plane(control) as plane:
        await plane.apply(a_gateway())
        await plane.apply(an_endpoint("provider", namespace=NAMESPACE, tier="external"))
        entries = (
            selecting({"modelplane.ai/deployment": "qwen"}),
            selecting({"tier": "external"}),
        )
        await plane.apply(a_service("qwen", *entries, namespace=NAMESPACE))
        await plane.apply(a_class())
        for cluster in ("eu", "us"):
            await plane.apply(a_cluster(cluster, nodes=4))
            await plane.ready("InferenceCluster", cluster)
        await plane.apply(a_cache("weights", NAMESPACE, "acme/weights"))
        await plane.apply(a_model(replicas=2))
        first = await placed(plane, 2, "engine:1")
        await routed(plane, *first, "provider")
        await plane.scale("qwen", NAMESPACE, 3)
        assert (await placed(plane, 3, "engine:1")).items() >= first.items()
        await plane.apply(a_model(replicas=3, image="registry.example/engine:2"))
        before = await placed(plane, 3, "engine:2")
        assert before.keys() >= first.keys()
        labelled = a_model(replicas=3, image="registry.example/engine:2")
        labelled["spec"]["template"]["metadata"] = {"labels": {"team": "blue"}}
        await plane.apply(labelled)
        await plane.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate(
            "lost on purpose"
        )
        assert await placed(plane, 3, "engine:2") == before
        await plane.delete("InferenceCluster", "eu", evict=True)
        await plane.gone("InferenceCluster", "eu")
        moved = await placed(plane, 3, "engine:2")
        assert set(moved.values()) == {"us"}
        await routed(plane, *moved, "provider")
        await plane.client.get_workflow_handle(
            names.endpoint_directory_id(NAMESPACE)
        ).terminate("lost on purpose")
        await plane.delete("ModelEndpoint", "provider", NAMESPACE)
        await plane.gone("ModelEndpoint", "provider", NAMESPACE)
        await routed(plane, *moved)
        for kind, name, namespace in (
            ("ModelDeployment", "qwen", NAMESPACE),
            ("ModelService", "qwen", NAMESPACE),
            ("InferenceGateway", "default", ""),
            ("ModelCache", "weights", NAMESPACE),
            ("InferenceCluster", "us", ""),
            ("InferenceClass", "h100-8x", ""),
        ):
            await plane.delete(kind, name, namespace)
            await plane.gone(kind, name, namespace)
        assert await plane.scheduler("ledger") == []
        assert await plane.scheduler("audit") == []
        assert (control.routes, control.backends) == ({}, {})
    assert {name for name in ALL - NOT_SENT_HERE if not sent[name]} == set()
