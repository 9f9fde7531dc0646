"""Server-side apply of the front compared with a real API server: random writes."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from api_types.resources.kinds import BY_KIND, KindInfo
from front.serving import bodies
from testbed.running import ClusterRunning, Running
from testbed.waiting import wait_until
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.front.applying.sequences import (
    NAME,
    NAMESPACE,
    Json,
    Write,
    a_definition,
    the_first,
    writes,
)
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.random_cases import SEED, cases

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = ("InferenceClass", "InferenceCluster", "ModelDeployment")
WRITES = 25
INVALID = 422


class RealServer:
    """An API server with our kinds."""

    def __init__(self, api: client.ApiClient) -> None:
        self._host, self._pool = api.configuration.host, api.rest_client.pool_manager

    def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Json]:
        sent = json.dumps(body) if body is not None else None
        headers = {
            "Content-Type": content_type,
            "Accept": "application/json",
            "User-Agent": "tests/1",
        }
        answer = self._pool.request(
            method, f"{self._host}{path}", body=sent, headers=headers
        )
        return answer.status, json.loads(answer.data)


@pytest.fixture(scope="module")
def server(
    testbed: Running, kube: Callable[[ClusterRunning], client.ApiClient]
) -> Iterator[RealServer]:
    """An API server without an APIService for a front."""
    real = RealServer(kube(list(testbed.clusters.values())[-1]))
    real.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for kind in KINDS:
        definition = a_definition(BY_KIND[kind])
        status, answer = real.ask("POST", CRDS, definition)
        assert status == 201, answer
    paths = [collection(BY_KIND[kind]) for kind in KINDS]
    wait_until(
        lambda: all(real.ask("GET", path)[0] == 200 for path in paths),
        TIMEOUT_SECONDS,
        lambda: "the kinds are not served",
    )
    yield real
    for kind in KINDS:
        real.ask("DELETE", f"{CRDS}/{BY_KIND[kind].plural}.{BY_KIND[kind].group}")


def collection(info: KindInfo) -> str:
    scope = f"namespaces/{NAMESPACE}/" if info.namespaced else ""
    return f"/apis/{info.api_version}/{scope}{info.plural}"


class Both:
    """The same object at the front and at an API server."""

    def __init__(self, fleet: Fleet, server: RealServer, info: KindInfo) -> None:
        self._fleet, self._server, self._path = (
            fleet,
            server,
            f"{collection(info)}/{NAME}",
        )

    async def front(
        self,
        method: str,
        below: str = "",
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Json]:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": content_type, "User-Agent": "tests/1"}
        status, answer = await self._fleet.ask(
            method, self._path + below, "root", data, **headers
        )
        return status, json.loads(answer)

    def real(
        self,
        method: str,
        below: str = "",
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> tuple[int, Json]:
        return self._server.ask(method, self._path + below, body, content_type)

    async def write(
        self, write: Write
    ) -> tuple[tuple[int, Json], tuple[int, Json]] | None:
        """Send a write to both; return None if only the front would reject it as
        invalid.
        """
        parameters = f"?fieldManager={write.manager}"
        if write.how == "replace":
            return await self._replaced(write, parameters)
        below, kind = parameters, bodies.MERGE
        if write.how == "apply":
            below, kind = f"{parameters}&force={str(write.force).lower()}", bodies.APPLY
        elif write.how == "scale":
            below = f"/scale{parameters}"
        front = await self.front("PATCH", below, write.body, kind)
        return (
            None
            if front[0] == INVALID
            else (front, self.real("PATCH", below, write.body, kind))
        )

    async def _replaced(
        self, write: Write, parameters: str
    ) -> tuple[tuple[int, Json], tuple[int, Json]] | None:
        wanted = [
            bodies.patched(tree, bodies.MERGE, write.body)
            for _, tree in (await self.front("GET"), self.real("GET"))
        ]
        front = await self.front("PUT", parameters, wanted[0])
        return (
            None
            if front[0] == INVALID
            else (front, self.real("PUT", parameters, wanted[1]))
        )


def compared(tree: Json) -> Json:
    """The fields that both must agree on, without times and server-specific fields."""
    if tree.get("kind") == "Status":
        causes = sorted(
            tree.get("details", {}).get("causes", ()),
            key=lambda cause: (cause["message"], cause["field"]),
        )
        return {
            "reason": tree["reason"],
            "message": sorted(tree["message"].splitlines()),
            "causes": causes,
        }
    if tree["kind"] == "Scale":
        return {"spec": tree["spec"]}
    metadata = tree["metadata"]
    entries = [
        {key: value for key, value in entry.items() if key != "time"}
        for entry in metadata.get("managedFields", ())
    ]
    owners = sorted(json.dumps(entry, sort_keys=True) for entry in entries)
    spec = without_empty(tree["spec"])
    return {
        "labels": metadata.get("labels", {}),
        "annotations": metadata.get("annotations", {}),
        "spec": spec,
        "owners": owners,
    }


def without_empty(node: Any) -> Any:
    """Drop empty lists and maps, which the front does not store, and nulls."""
    if isinstance(node, list):
        return [without_empty(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: without_empty(value) for key, value in node.items()}
    return {key: value for key, value in found.items() if value not in ({}, [], None)}


@pytest.mark.random
@pytest.mark.parametrize("kind", KINDS)
async def test_random_writes_of_several_managers_have_equal_results(
    server: RealServer, tmp_path: Path, kind: str
) -> None:
    done = refused = 0
    for case in range(cases(6)):
        drawn = random.Random(f"{SEED} {kind} {case}")  # noqa: S311 - repeatable on purpose
        first = Write("apply", drawn.choice(["alpha", "owner"]), the_first(kind))
        async with a_fleet(tmp_path) as fleet:
            both = Both(fleet, server, BY_KIND[kind])
            both.real("DELETE")
            for number, write in enumerate([first, *writes(drawn, kind, WRITES)]):
                if (answers := await both.write(write)) is None:
                    refused += 1
                    continue
                (status, front), (real_status, real) = answers
                if real_status == INVALID and '"null"' in real["message"]:
                    # The API server leaves null if the last item of an owned list was
                    # removed, and then rejects it. The front leaves `[]`.
                    break
                told = (
                    f"case {case}, write {number}: {write}\n"
                    f"{json.dumps(front)[:3000]}\n{json.dumps(real)[:3000]}"
                )
                assert status == real_status, told
                assert compared(front) == compared(real), told
                done += 1
    assert done > refused
