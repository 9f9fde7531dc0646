"""Deployments with as many replicas, as long names and as large templates as admission accepts.

None of their payloads, memos, search attributes or histories exceeds the limits of a
real server, and the command line shows them.
"""

import asyncio
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api_types import names
from api_types.limits import REPLICAS_MAX
from api_types.payloads.limits import SERVER_HISTORY_BYTES, SERVER_HISTORY_EVENTS
from api_types.validation.admission import admit
from api_types.validation.problems import InvalidManifest
from fleet_client.checks import CHECKS
from tests.workflows.environment.harness import Json, a_deployment, eventually
from tests.workflows.environment.payload_sizes import assert_within_limits
from tests.workflows.environment.protocol_fleet import (
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from tests.workflows.test_largest_objects import filled, noise

pytestmark = [pytest.mark.soak, pytest.mark.testbed("shared"), pytest.mark.timeout(7200)]

# Two deployments share the fleet.
DEPLOYMENTS = 2
WITHIN_SECONDS = 3600
NAMESPACE = noise(63, "namespace")
SHOWN_REPLICAS = 8


def longest_name(seed: int) -> str:
    """Return a name as long as admission accepts for a deployment."""
    for length in range(253, 0, -1):
        if is_lawful(a_deployment(noise(length, seed), NAMESPACE)):
            return noise(length, seed)
    raise AssertionError("admission accepts no name")


def is_lawful(document: Json) -> bool:
    try:
        admit(document, CHECKS)
    except InvalidManifest:
        return False
    return True


def a_large_deployment(seed: int, replicas: int, *, whole: bool) -> Json:
    """Return a deployment with the longest names, and if `whole` with the largest template."""
    document = a_deployment(longest_name(seed), NAMESPACE, replicas=replicas)
    document["spec"]["rollout"] = {"type": "AllAtOnce"}
    document["metadata"]["labels"] = {f"example.com/{noise(50, n)}": noise(63, n) for n in range(8)}
    (member,) = document["spec"]["template"]["spec"]["engines"][0]["members"]
    container = member["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "FILL", "value": ""}]
    if not whole:
        return document
    return filled(document, container["env"][0], "value", seed)


def with_image(document: Json, image: str) -> Json:
    changed = copy.deepcopy(document)
    (member,) = changed["spec"]["template"]["spec"]["engines"][0]["members"]
    member["template"]["spec"]["containers"][0]["image"] = image
    return changed


async def shown(fleet: ProtocolFleet, document: Json) -> dict[str, Any]:
    """Return the status of a deployment; empty while it does not answer."""
    workflow_id = names.workflow_id("ModelDeployment", NAMESPACE, document["metadata"]["name"])
    seen = await fleet._query(workflow_id, "describe")
    return seen["status"] if seen else {}


async def placed(fleet: ProtocolFleet, documents: list[Json], replicas: int) -> None:
    """Wait until every deployment has as many replicas as it wants, and no others."""

    async def totals() -> list[int]:
        found = [await shown(fleet, document) for document in documents]
        return [status.get("replicas", {}).get("total", -1) for status in found]

    wanted = [replicas] * len(documents)
    await eventually(totals, lambda found: found == wanted, within=WITHIN_SECONDS, what="replicas")
    total = replicas * len(documents)
    await eventually(
        lambda: fleet.running("ModelReplica"),
        lambda found: found == total,
        within=WITHIN_SECONDS,
        what="running replicas",
    )


async def within_limits(fleet: ProtocolFleet, documents: list[Json]) -> None:
    """Check all that the server stored of the scheduler, the deployments and some replicas."""
    ids = [names.FLEET_SCHEDULER_ID]
    ids += [
        names.workflow_id("ModelDeployment", NAMESPACE, document["metadata"]["name"])
        for document in documents
    ]
    rows = fleet.client.list_workflows('WorkflowType = "ModelReplica"', page_size=SHOWN_REPLICAS)
    async for row in rows:
        if len(ids) == 1 + len(documents) + SHOWN_REPLICAS:
            break
        ids.append(row.id)
    for workflow_id in ids:
        await assert_within_limits(fleet.client, workflow_id)
        described = await fleet.client.get_workflow_handle(workflow_id).describe()
        info = described.raw_description.workflow_execution_info
        # A run continues as new far below the limit of the server.
        assert info.history_size_bytes < SERVER_HISTORY_BYTES / 2
        assert info.history_length < SERVER_HISTORY_EVENTS / 2


def command(settings: dict[str, str], *words: str) -> str:
    """Run a command of the command line. Return its output."""
    program = [sys.executable, "-m", "client.main", *words]
    ran = subprocess.run(
        program, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("replicas", "whole"), [(REPLICAS_MAX, False), (100, True)], ids=["most", "largest"]
)
async def test_the_maximum_number_and_size_of_replicas_can_be_placed_changed_and_shown(
    replicas: int,
    whole: bool,
    tmp_path: Path,
) -> None:
    documents = [a_large_deployment(n, replicas, whole=whole) for n in range(DEPLOYMENTS)]
    async with protocol_fleet(clients=1) as fleet:
        address = fleet.client.service_client.config.target_host
        settings = {
            "MODELPLANE_TEMPORAL__ADDRESS": address,
            "MODELPLANE_SECRETS__DIRECTORY": str(tmp_path),
        }
        pools = {noise(36, n): replicas for n in range(3)}
        clusters = [ReportedCluster(noise(63, f"cluster-{n}"), pools) for n in range(2)]
        await fleet.add(clusters)
        await fleet.submit(documents)
        await placed(fleet, documents, replicas)
        changed = [with_image(document, "registry.example/engine:2") for document in documents]
        for number, document in enumerate(changed):
            await fleet.apply(document, request_id=f"second-{number}")

        async def generations() -> list[int]:
            found = [await shown(fleet, document) for document in documents]
            return [status.get("observedGeneration", 0) for status in found]

        wanted = [2] * DEPLOYMENTS
        await eventually(generations, lambda found: found == wanted, within=WITHIN_SECONDS)
        await placed(fleet, documents, replicas)
        await within_limits(fleet, documents)
        name = documents[0]["metadata"]["name"]
        words = ("-n", NAMESPACE, "-o", "json")
        got = await asyncio.to_thread(command, settings, "get", "md", name, *words)
        assert json.loads(got)["metadata"]["name"] == name
        for verb in ("describe", "explain", "events"):
            said = await asyncio.to_thread(command, settings, verb, f"md/{name}", "-n", NAMESPACE)
            assert said
        listed = await asyncio.to_thread(command, settings, "get", "mr", "-n", NAMESPACE)
        assert listed.count("\n") > replicas
        # The next scheduler continues the state of a lost one.
        await fleet.terminate_scheduler("lost on purpose")

        async def charged() -> int:
            seen = await fleet.scheduler("describe")
            complete = seen is not None and not seen["status"]["rebuilding"]
            return int(seen["status"]["replicas"]) if complete else -1

        total = replicas * DEPLOYMENTS
        await eventually(charged, lambda found: found == total, within=WITHIN_SECONDS)
        await within_limits(fleet, documents)
