"""The places where a secret might leak: the server's store, outputs of programs,
objects.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from temporalio.client import WorkflowExecutionStatus

from tests.secrecy.environment.canaries import decoded, texts_of
from tests.secrecy.environment.plane import CLUSTER, NAMESPACE, SecretPlane
from tests.workflows.environment.harness import Json

VALUES = ("data", "stringData", "binaryData")


class Place(NamedTuple):
    """A readable place."""

    kind: str
    name: str
    text: str


async def places(plane: SecretPlane) -> AsyncIterator[Place]:
    """Return all readable places."""
    async for place in _of_the_server(plane):
        yield place
    yield Place("metrics", "of the worker", plane.worker.metrics())
    for file, text in texts_of(plane.folder, without=[plane.store, plane.keys]):
        name = str(file.relative_to(plane.folder))
        yield Place(
            "output of commands" if name.startswith("commands/") else name, name, text
        )
    for item in _on_the_cluster(plane):
        yield Place(
            f"{item['kind']} on the cluster", item["metadata"]["name"], json.dumps(item)
        )


async def _of_the_server(plane: SecretPlane) -> AsyncIterator[Place]:
    codec = plane.client.data_converter.payload_codec
    async for run in plane.client.list_workflows():
        handle = plane.client.get_workflow_handle(run.id, run_id=run.run_id)
        description = await handle.describe()
        trees = {
            "history": (await handle.fetch_history()).to_json_dict(),
            "description": MessageToDict(description.raw_description),
        }
        for what, tree in trees.items():
            yield Place(what, run.id, json.dumps(tree))
            yield Place(
                f"payloads of the {what}", run.id, "\n".join(await decoded(tree, codec))
            )
        if description.status is WorkflowExecutionStatus.RUNNING:
            yield Place("stack", run.id, str(await handle.query("__stack_trace")))


def _on_the_cluster(plane: SecretPlane) -> Iterator[Json]:
    """Return every object of the tenant's namespace, events included.

    Values of Secrets and ConfigMaps are left out.
    """
    for base, resource in plane._listable(CLUSTER):
        if resource["namespaced"]:
            listed: Any = (
                plane.get(CLUSTER, f"{base}/namespaces/{NAMESPACE}/{resource['name']}")
                or {}
            )
            for item in listed.get("items") or ():
                without = VALUES if resource["kind"] in ("Secret", "ConfigMap") else ()
                yield {
                    "kind": resource["kind"],
                    **{key: value for key, value in item.items() if key not in without},
                }
