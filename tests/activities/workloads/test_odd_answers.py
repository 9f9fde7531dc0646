"""An API server that returns an unrelated object for a request about pods.

The apply fails with a clear message, and may be retried.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from activities.cluster_objects.cluster_api import Json, ObjectId
from activities.render.objects.inventory_keys import ENGINE_PREFIX
from activities.workloads.pending import Applying, Plan, plan_apply
from api_types.errors import ServerError
from api_types.labels import FIELD_MANAGER
from tests.activities.render.builders import an_engine, render
from tests.activities.workloads.test_apply_turns import a_pool, apply_replica
from tests.environment.api_server import ApiServer
from tests.environment.idle_clusters import IdleCluster

RENDERED = render(an_engine())
OTHERS = render(an_engine(), settings={"termination_grace_seconds": 77})
WORKLOAD = next(item for item in OTHERS.objects if item.key == f"{ENGINE_PREFIX}main")


@dataclass
class OddServer(IdleCluster):
    """It has one object, and one response to every apply."""

    stored: Json
    answer: Any

    async def get(self, target: ObjectId) -> Json | None:
        return self.stored if target == ObjectId.of(WORKLOAD.manifest) else None

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        del manifest, dry_run
        found: Json = self.answer
        return found


async def planned(stored: Json, answer: Any) -> Plan:
    server = OddServer(stored, answer)
    return await plan_apply(
        server, Applying((WORKLOAD,), {ObjectId.of(WORKLOAD.manifest): stored}, (), 1)
    )


def before() -> Json:
    """The workload as it was rendered with the earlier settings."""
    manifest = next(
        item.manifest for item in RENDERED.objects if item.key == WORKLOAD.key
    )
    ours = {
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "fieldsV1": {"f:spec": {"f:template": {}}},
    }
    return {**manifest, "metadata": {**manifest["metadata"], "managedFields": [ours]}}


async def test_an_answer_says_whether_pods_would_be_other_ones() -> None:
    assert list((await planned(before(), WORKLOAD.manifest)).pending) == [WORKLOAD.key]
    assert (await planned(before(), before())).pending == {}


@pytest.mark.parametrize(
    "answer",
    [{}, {"spec": {}}, {"spec": None}, {"spec": []}, [], None, "yes"],
    ids=repr,
)
async def test_a_dry_run_response_that_is_not_a_workload_is_a_clear_error(
    answer: Any,
) -> None:
    with pytest.raises(
        ServerError,
        match=f"{WORKLOAD.manifest['metadata']['name']} is malformed",
    ):
        await planned(before(), answer)


@pytest.mark.parametrize(
    "spec", [None, {}, {"template": None}, {"template": {"spec": [1]}}], ids=repr
)
async def test_a_stored_workload_without_pods_is_one_too(spec: Any) -> None:
    with pytest.raises(ServerError, match="is malformed"):
        await planned({**before(), "spec": spec}, WORKLOAD.manifest)


async def test_an_apply_answered_without_an_object_is_an_error_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ApiServer._answer

    async def answer(server: ApiServer, request: web.Request) -> web.Response:
        return (
            web.json_response({"kind": "Status"})
            if request.method == "PATCH"
            else await usual(server, request)
        )

    monkeypatch.setattr(ApiServer, "_answer", answer)
    async with AsyncExitStack() as stack:
        pool, _ = await a_pool(stack, 1)
        with pytest.raises(
            ServerError,
            match=r"is malformed \(KeyError: 'metadata'\)",
        ):
            await apply_replica(pool, tmp_path, [])
