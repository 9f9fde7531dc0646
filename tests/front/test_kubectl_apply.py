"""`kubectl apply --server-side` with the front, real Temporal, workers and TLS.

The deployments are not placed, because only their counts and owners matter.
"""

import json
from typing import Any

import pytest

from api_types import labels
from tests.front.front_under_test import NOWHERE, FrontUnderTest, Json
from tests.workflows.environment.harness import a_deployment

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

NAMESPACE = "team-a"
APPLY = ("apply", "--server-side", "-f", "-")
KIND = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeployment"}


def document(name: str, texts: Json | None = None, **more: Any) -> str:
    tree = a_deployment(name, NAMESPACE, clusterSelector=NOWHERE, **more)
    return json.dumps({**tree, "metadata": {**tree["metadata"], "labels": texts or {}}})


def part(name: str, replicas: int) -> str:
    """The configuration of a manager that only sets the count."""
    return json.dumps(
        {
            **KIND,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"replicas": replicas},
        }
    )


async def seen(front: FrontUnderTest, name: str) -> Json:
    found: Json = json.loads(
        await front.kubectl(
            "-n", NAMESPACE, "get", "md", name, "-o", "json", "--show-managed-fields"
        )
    )
    return found


async def owners(front: FrontUnderTest, name: str) -> list[tuple[str, str]]:
    return [
        (entry["manager"], entry["operation"])
        for entry in (await seen(front, name))["metadata"].get("managedFields", ())
    ]


async def gone(front: FrontUnderTest, name: str) -> None:
    await front.kubectl("-n", NAMESPACE, "delete", f"md/{name}", "--timeout=240s")


async def test_an_object_is_created_changed_and_shared_by_managers(
    front: FrontUnderTest,
) -> None:
    dry = await front.kubectl(*APPLY, "--dry-run=server", input=document("shared"))
    assert "serverside-applied (server dry run)" in dry
    assert await front.plane.describe("ModelDeployment", "shared", NAMESPACE) == {}
    assert "serverside-applied" in await front.kubectl(
        *APPLY, input=document("shared", {"tier": "gold"})
    )
    before = await seen(front, "shared")
    assert "serverside-applied" in await front.kubectl(
        *APPLY, input=document("shared", {"tier": "gold"})
    )
    # An apply without changes writes nothing.
    assert (await seen(front, "shared"))["metadata"]["generation"] == before[
        "metadata"
    ]["generation"]
    assert await owners(front, "shared") == [("kubectl", "Apply")]

    told = await front.kubectl(
        *APPLY, "--field-manager=other", input=part("shared", 2), fails=True
    )
    assert (
        'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas' in told
    )
    assert "Please review the fields above--they currently have other managers" in told
    await front.kubectl(
        *APPLY, "--field-manager=other", "--force-conflicts", input=part("shared", 2)
    )
    assert (await seen(front, "shared"))["spec"]["replicas"] == 2
    told = await front.kubectl(
        *APPLY, input=document("shared", {"tier": "gold"}), fails=True
    )
    assert 'conflict with "other": .spec.replicas' in told

    diff = await front.kubectl(
        "diff",
        "--server-side",
        "--force-conflicts",
        "-f",
        "-",
        input=document("shared"),
        fails=True,
    )
    assert "-    tier: gold" in diff
    assert "+  replicas: 1" in diff
    await front.kubectl(*APPLY, "--force-conflicts", input=document("shared"))
    after = await seen(front, "shared")
    assert (after["spec"]["replicas"], after["metadata"].get("labels")) == (1, None)
    hidden = await front.kubectl("-n", NAMESPACE, "get", "md", "shared", "-o", "yaml")
    assert "managedFields" not in hidden
    assert labels.MANAGED_FIELDS not in hidden + json.dumps(after)
    await gone(front, "shared")


async def test_a_scaler_owns_the_count_until_a_forced_apply(
    front: FrontUnderTest,
) -> None:
    await front.kubectl(*APPLY, input=document("scaled"))
    await front.kubectl("-n", NAMESPACE, "scale", "md/scaled", "--replicas=3")
    assert await owners(front, "scaled") == [("kubectl", "Apply"), ("admin", "Update")]
    told = await front.kubectl(*APPLY, input=document("scaled"), fails=True)
    assert (
        'conflict with "admin" with subresource "scale" using '
        "modelplane.ai/v1alpha1: .spec.replicas"
    ) in told
    # The same count as in the previous apply. The workflow does not treat it as a
    # user's decision.
    await front.kubectl(*APPLY, "--force-conflicts", input=document("scaled"))
    assert (await seen(front, "scaled"))["spec"]["replicas"] == 1
    assert await owners(front, "scaled") == [("kubectl", "Apply")]
    # An apply without a count keeps the scaler's count.
    await front.kubectl("-n", NAMESPACE, "scale", "md/scaled", "--replicas=3")
    without = json.loads(document("scaled"))
    del without["spec"]["replicas"]
    await front.kubectl(*APPLY, input=json.dumps(without))
    await front.kubectl("-n", NAMESPACE, "label", "md/scaled", "a=b")
    after = await seen(front, "scaled")
    assert (after["spec"]["replicas"], after["status"]["lastScale"]["by"]) == (
        3,
        "admin",
    )
    await gone(front, "scaled")


async def test_kubectl_migrates_from_client_side_apply(
    front: FrontUnderTest,
) -> None:
    await front.kubectl(
        "apply", "-f", "-", input=document("moved", {"a": "1", "b": "1"})
    )
    await front.kubectl("-n", NAMESPACE, "label", "md/moved", "c=1")
    assert await owners(front, "moved") == []
    # kubectl's own earlier values cause no conflict.
    moved = await front.kubectl(*APPLY, input=document("moved", {"a": "2"}, replicas=2))
    assert "serverside-applied" in moved
    assert "Warning" not in moved
    after = await seen(front, "moved")
    assert after["spec"]["replicas"] == 2
    managers = await owners(front, "moved")
    assert ("kubectl", "Apply") in managers
    assert ("kubectl-client-side-apply", "Update") not in managers
    # Fields that are missing from the new configuration are removed.
    await front.kubectl(*APPLY, input=document("moved", replicas=2))
    # Fields that others set stay theirs, no matter who applied first.
    assert (await seen(front, "moved"))["metadata"]["labels"] == {"c": "1"}
    assert "configured" in await front.kubectl(
        "apply", "-f", "-", input=document("moved", {"d": "1"}, replicas=1)
    )
    assert (await seen(front, "moved"))["metadata"]["labels"]["d"] == "1"
    await gone(front, "moved")


async def test_apply_needs_the_right_to_patch_and_to_create_a_missing_object(
    front: FrontUnderTest,
) -> None:
    assert "Forbidden" in await front.kubectl(
        *APPLY, input=document("not"), user="bob", fails=True
    )
    assert await front.plane.describe("ModelDeployment", "not", NAMESPACE) == {}
    wrong = json.loads(document("not"))
    wrong["spec"]["replicas"] = -1
    told = await front.kubectl(*APPLY, input=json.dumps(wrong), fails=True)
    assert "spec.replicas: must be between 0 and 1000, got -1" in told
