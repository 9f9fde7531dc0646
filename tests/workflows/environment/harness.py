"""A control plane under test.

The testbed, a worker process that can be killed, and helpers for tests.
"""

import asyncio
import base64
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes.client import ApiClient
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.search_attributes import identity_at_start
from api_types import labels, names, queues
from api_types.errors import QUERY_REFUSED
from api_types.messages.entities import Delete, Force, Scale, SetSpec
from fleet_client.temporal.converter import DATA_CONVERTER
from fleet_client.temporal.failures import UNANSWERED
from fleet_client.temporal.queries import RetriedQueries
from testbed.running import Running
from tests.environment.cached_programs import cached
from tests.environment.waiting import LONGEST_PAUSE_SECONDS, TIMEOUT_SECONDS, pauses
from tests.workflows.environment import forking

Json = dict[str, Any]
# Seconds that a worker may take to stop after SIGTERM, including the grace period of
# its activities.
STOP_SECONDS = 60
# Polling interval for changes that take less than a second.
SOON_SECONDS = 0.03
_MARKS = (labels.SERVING, labels.WORKLOAD, labels.REPLICA)
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


async def eventually(
    look: Callable[[], Awaitable[Any]],
    holds: Callable[[Any], bool],
    *,
    within: float = TIMEOUT_SECONDS,
    longest_pause: float = LONGEST_PAUSE_SECONDS,
    what: str = "",
) -> Any:
    """Poll until `holds` accepts the observation; otherwise fail with the last one.

    `longest_pause` limits the polling interval, for a state that passes quickly.
    """
    seen: Any = None
    for pause in pauses(within, longest=longest_pause):
        seen = await look()
        if holds(seen):
            return seen
        await asyncio.sleep(pause)
    raise AssertionError(
        f"{what or 'it'} did not hold within {within} s; last seen: {_shown(seen)[:6000]}"
    )


def _shown(seen: Any) -> str:
    try:
        return str(yaml.safe_dump(seen))
    except yaml.YAMLError:
        return repr(seen)


class WorkerProcess:
    """The worker as a separate process, as users run it.

    `module` may name a variant with stand-ins.
    """

    def __init__(
        self, settings: dict[str, str], log: Path, module: str = forking.WORKER
    ) -> None:
        self._module = module
        self._log = log
        self._listen = f"127.0.0.1:{free_port()}"
        self.settings = settings
        self._forks = forking.forks()
        self._pid = 0

    def start(self) -> None:
        """Start the worker and wait until it serves. Kill it if it does not."""
        settings = {**self.settings, "MODELPLANE_WORKER__LISTEN": self._listen}
        self._pid = self._forks.start(settings, self._log, self._module)
        with httpx.Client(base_url=f"http://{self._listen}", timeout=60) as http:
            for pause in pauses(shortest=SOON_SECONDS):
                if (code := self._exit_code()) is not None:
                    raise AssertionError(
                        f"the worker ended with {code}:\n{self._log.read_text()[-4000:]}"
                    )
                with suppress(httpx.HTTPError):
                    if http.get("/healthz").status_code == HTTPStatus.OK:
                        return
                time.sleep(pause)
        self.kill()
        raise AssertionError(
            f"the worker does not answer:\n{self._log.read_text()[-4000:]}"
        )

    def is_running(self) -> bool:
        return bool(self._pid) and self._exit_code() is None

    @property
    def pid(self) -> int:
        """Return the process id of the running worker."""
        assert self._pid
        return self._pid

    def metrics(self) -> str:
        return httpx.get(f"http://{self._listen}/metrics", timeout=60).text

    def readiness(self) -> str:
        return httpx.get(f"http://{self._listen}/readyz", timeout=60).text

    def kill(self) -> None:
        """Kill the worker with SIGKILL, if it runs."""
        if self.is_running():
            self._end(signal.SIGKILL)

    def hang(self) -> None:
        """Suspend the worker with SIGSTOP. Its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def stop(self) -> int:
        """Stop the worker with SIGTERM; return the exit code."""
        return self._end(signal.SIGTERM)

    def log(self) -> str:
        return self._log.read_text()

    def _end(self, number: signal.Signals) -> int:
        os.kill(self.pid, number)
        for pause in pauses(within=STOP_SECONDS, shortest=SOON_SECONDS):
            if (code := self._exit_code()) is not None:
                return code
            time.sleep(pause)
        raise AssertionError(
            f"the worker still runs after {number.name}:\n{self._log.read_text()[-4000:]}"
        )

    def _exit_code(self) -> int | None:
        """Return the exit code, once only; None while the worker runs."""
        code = self._forks.exit_code(self.pid)
        if code is not None:
            self._pid = 0
        return code


class ControlPlane:
    """The control plane and its helpers."""

    def __init__(
        self,
        client: Client,
        running: Running,
        worker: WorkerProcess | None,
        kube: Callable[[Any], ApiClient],
    ) -> None:
        self.client = client
        self.running = running
        self._worker = worker
        self._kube = kube
        self._kinds: dict[str, list[tuple[str, Json]]] = {}

    @property
    def worker(self) -> WorkerProcess:
        """Return the worker process. A test may use workers of its own instead."""
        assert self._worker
        return self._worker

    # Objects

    def handle(
        self, kind: str, name: str, namespace: str = ""
    ) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(names.workflow_id(kind, namespace, name))

    async def apply(self, document: Json) -> str:
        metadata = document["metadata"]
        kind, namespace, name = (
            document["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
        )
        request_id = uuid.uuid4().hex
        await self.client.start_workflow(
            kind,
            None,
            id=names.workflow_id(kind, namespace, name),
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **identity_at_start(kind, namespace, name),
            start_signal="set_spec",
            start_signal_args=[
                SetSpec(request_id=request_id, by="test", manifest=document).wire()
            ],
        )
        return request_id

    async def describe(self, kind: str, name: str, namespace: str = "") -> Json:
        """Return the object, or an empty tree if it does not exist or no worker answers.

        Only `gone` can distinguish the two.
        """
        handle = self.handle(kind, name, namespace)
        try:
            seen: Json = await handle.query(
                "describe", reject_condition=QueryRejectCondition.NOT_OPEN
            )
        except WorkflowQueryRejectedError:
            return {}
        except RPCError as error:
            if error.status in (
                RPCStatusCode.NOT_FOUND,
                RPCStatusCode.UNAVAILABLE,
                *UNANSWERED,
            ):
                return {}
            raise
        except WorkflowQueryFailedError as error:
            # A worker without processor time may reject a query for longer than the
            # client repeats it.
            if QUERY_REFUSED in str(error):
                return {}
            raise
        return seen

    async def until(
        self,
        kind: str,
        name: str,
        holds: Callable[[Json], bool],
        namespace: str = "",
        within: float = TIMEOUT_SECONDS,
    ) -> Json:
        """Wait until the described object satisfies `holds`.

        An object that no worker describes never does. Use `gone` to wait for the end of
        an object.
        """
        seen: Json = await eventually(
            lambda: self.describe(kind, name, namespace),
            lambda tree: bool(tree) and holds(tree),
            within=within,
            what=f"{kind} {name}",
        )
        return seen

    async def ready(
        self, kind: str, name: str, namespace: str = "", within: float = TIMEOUT_SECONDS
    ) -> Json:
        return await self.until(
            kind,
            name,
            lambda seen: condition(seen, "Ready") == "True",
            namespace,
            within,
        )

    async def gone(
        self, kind: str, name: str, namespace: str = "", within: float = TIMEOUT_SECONDS
    ) -> None:
        async def runs() -> bool:
            try:
                return (
                    await self.handle(kind, name, namespace).describe()
                ).status is WorkflowExecutionStatus.RUNNING
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise

        await eventually(
            runs,
            lambda running: not running,
            within=within,
            what=f"the end of {kind} {name}",
        )

    async def delete(
        self, kind: str, name: str, namespace: str = "", **more: Any
    ) -> None:
        await self.handle(kind, name, namespace).signal(
            "delete", Delete(request_id=uuid.uuid4().hex, by="test", **more).wire()
        )

    async def force(self, kind: str, name: str, namespace: str = "") -> None:
        order = Force(
            request_id=uuid.uuid4().hex, by="test", reason="it is lost", scope="all"
        )
        await self.handle(kind, name, namespace).signal("force", order.wire())

    async def delete_deployments(self, namespaces: str = "") -> None:
        """Delete every deployment in namespaces with this prefix.

        A failed test's deployments hold nodes, and nodes are few.
        """
        async for run in self.client.list_workflows(
            'WorkflowType = "ModelDeployment" AND ExecutionStatus = "Running"'
        ):
            _, namespace, deployment = run.id.split("/")
            if namespace.startswith(namespaces):
                await self.delete("ModelDeployment", deployment, namespace)

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        await self.handle("ModelDeployment", name, namespace).signal(
            "scale",
            Scale(request_id=uuid.uuid4().hex, by="test", replicas=replicas).wire(),
        )

    async def scheduler(self, query: str) -> Any:
        """Query the scheduler until it answers.

        The server rejects queries after three workflow tasks in a row were lost with
        their workers.
        """
        handle = self.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        for pause in pauses():
            try:
                return await handle.query(query)
            except RPCError as error:
                if error.status not in UNANSWERED:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError(f"the scheduler does not answer {query}")

    # Clusters

    def get(self, cluster: str, path: str) -> Any:
        """Send a GET for an API path of a cluster; return None for 404."""
        return self.call(cluster, "GET", path)

    def call(
        self,
        cluster: str,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
    ) -> Any:
        """Send one request to a cluster; return None for 404."""
        api = self._kube(self.running.clusters[cluster])
        headers = {"Content-Type": content_type, "Accept": accept}
        response = api.call_api(
            method,
            self.running.clusters[cluster].server + path,
            header_params=headers,
            body=body,
        )
        text = response.read()
        if response.status == HTTPStatus.NOT_FOUND:
            return None
        assert response.status < HTTPStatus.BAD_REQUEST, (
            f"{method} {path}: {response.status} {text!r}"
        )
        return json.loads(text)

    def our_objects(self, cluster: str, namespace: str) -> list[str]:
        """Return all objects in a namespace that carry our labels or belong to such an
        object, of every kind that the cluster serves.
        """
        found: list[str] = []
        for base, resource in self._listable(cluster):
            scope = f"/namespaces/{namespace}" if resource["namespaced"] else ""
            listed = self.call(
                cluster,
                "GET",
                f"{base}{scope}/{resource['name']}",
                accept=_METADATA_ONLY,
            ) or {"items": []}
            ours = resource["kind"] == "ResourceClaim"
            items = (
                listed["items"] or ()
            )  # null for the kinds that are computed on request
            found += [
                f"{resource['kind']}/{item['metadata']['name']}"
                for item in items
                if ours or is_ours(item["metadata"])
            ]
        return sorted(set(found))

    def _listable(self, cluster: str) -> list[tuple[str, Json]]:
        """Return every kind that the cluster serves and lists, with the path of its group.

        The result is cached, because no test here adds kinds.
        """
        if cluster not in self._kinds:
            groups = self.get(cluster, "/apis")["groups"]
            bases = [
                "/api/v1",
                *(
                    f"/apis/{group['preferredVersion']['groupVersion']}"
                    for group in groups
                ),
            ]
            served = [
                (base, each)
                for base in bases
                for each in (self.get(cluster, base) or {}).get("resources", ())
            ]
            self._kinds[cluster] = [
                (base, each)
                for base, each in served
                if "list" in each["verbs"] and "/" not in each["name"]
            ]
        return self._kinds[cluster]

    def pods(self, cluster: str, namespace: str) -> list[Json]:
        items: list[Json] = self.get(cluster, f"/api/v1/namespaces/{namespace}/pods")[
            "items"
        ]
        return items


def is_ours(metadata: Json) -> bool:
    """Return whether an object or its owner carries our labels."""
    marks = metadata.get("labels") or {}
    return marks.get(
        labels.MANAGED_BY
    ) == labels.MANAGED_BY_VALUE or not marks.keys().isdisjoint(_MARKS)


def condition(seen: Json, kind: str) -> str:
    """Return the status of a condition, or "" if it is missing."""
    return next(
        (
            item["status"]
            for item in seen.get("status", {}).get("conditions", ())
            if item["type"] == kind
        ),
        "",
    )


def reason(seen: Json, kind: str) -> str:
    """Return the reason of a condition, or "" if it is missing."""
    return next(
        (
            item["reason"]
            for item in seen.get("status", {}).get("conditions", ())
            if item["type"] == kind
        ),
        "",
    )


def message(seen: Json, kind: str) -> str:
    """Return the message of a condition, or "" if it is missing."""
    return next(
        (
            item.get("message", "")
            for item in seen.get("status", {}).get("conditions", ())
            if item["type"] == kind
        ),
        "",
    )


def said(tree: Any) -> Iterator[str]:
    """Yield the text of every payload in a history, decoded from base64."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "data" and isinstance(value, str):
                yield base64.b64decode(value).decode(errors="replace")
            else:
                yield from said(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from said(item)


def a_deployment(
    name: str,
    namespace: str,
    *,
    replicas: int = 1,
    gpus: int = 1,
    image: str = "registry.example/engine:1",
    **more: Any,
) -> Json:
    """Return a ModelDeployment with one Standalone engine."""
    device = {
        "name": "gpu",
        "count": gpus,
        "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}],
    }
    member = {
        "nodeSelector": {"devices": [device]},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "image": image,
                        "args": ["--model=example/model"],
                    }
                ]
            }
        },
    }
    template = {"spec": {"engines": [{"name": "main", "members": [member]}], **more}}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "template": template},
    }


def a_cache(
    name: str,
    namespace: str,
    repo: str,
    *,
    match: dict[str, str] | None = None,
    refresh: str = "",
    **block: Any,
) -> Json:
    """Return a ModelCache of 20 GiB for a repository of the hub."""
    selector = {"clusterSelector": {"matchLabels": match}} if match else {}
    annotations = {"annotations": {labels.REFRESH: refresh}} if refresh else {}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": namespace, **annotations},
        "spec": {
            "source": "HuggingFace",
            "huggingFace": {"repo": repo, "sizeGiB": 20, **block},
            **selector,
        },
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def a_worker(
    temporal_address: str,
    secrets: Path,
    log: Path,
    module: str = forking.WORKER,
    **more: str,
) -> Iterator[WorkerProcess]:
    """Start a worker of a Temporal server with these additional variables, and stop it
    at the end.
    """
    worker = worker_process(temporal_address, secrets, log, module, **more)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


def worker_process(
    temporal_address: str,
    secrets: Path,
    log: Path,
    module: str = forking.WORKER,
    **more: str,
) -> WorkerProcess:
    """Return a worker that is not started yet."""
    settings = {
        "MODELPLANE_TEMPORAL__ADDRESS": temporal_address,
        "MODELPLANE_SECRETS__DIRECTORY": str(secrets),
        "MODELPLANE_KUBECONFIG__ALLOW_LOOPBACK": "true",
        "MODELPLANE_TEARDOWN__DRAIN_SECONDS": "1",
    }
    # Use the helm that the testbed builds. It builds none on a machine that has that
    # version.
    for helm in filter(Path.is_file, cached("helm")):
        settings["MODELPLANE_STACK__HELM"] = str(helm)
    settings.update(more)
    return WorkerProcess(settings, log, module)


@asynccontextmanager
async def connected(running: Running) -> AsyncIterator[Client]:
    yield await Client.connect(
        running.temporal_address,
        data_converter=DATA_CONVERTER,
        interceptors=[RetriedQueries()],
    )
