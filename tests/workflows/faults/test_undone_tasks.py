"""A workflow task is executed twice, the second time with more messages.

Messages of its first attempt must not leave a wrong state behind.

These tests use a real Temporal server. Each one delivers messages that reverse a
decision right after the decision was sent to another entity.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api_types.messages.caches import CacheUse
from api_types.messages.delivery import EntityRef, SignalRequest
from api_types.messages.entities import ClassUse, SetSpec, SetTemplate
from api_types.messages.observations import Observed
from api_types.messages.routing import (
    Endpoint,
    EndpointReport,
    EntrySelection,
    ServiceEndpoints,
)
from api_types.messages.scheduling import (
    PlacementResponse,
    ReplicaPlacement,
    ReportCluster,
)
from api_types.messages.signals import (
    FLEET_SCHEDULER,
    EndpointDirectorySignals,
    EntitySignals,
    FleetSchedulerSignals,
    InferenceClassSignals,
    InferenceClusterSignals,
    ModelCacheSignals,
    ModelDeploymentSignals,
    ModelReplicaSignals,
    ModelServiceSignals,
    endpoint_directory,
)
from api_types.messages.versions import MessageVersion, ObservationOrder
from api_types.queues import ClusterWork, cluster_queue
from tests.workflows.environment.harness import Json, a_deployment
from tests.workflows.environment.undone_tasks import UndoneTasks, undone_tasks
from tests.workflows.inference_cluster import builders as clusters
from tests.workflows.model_cache import builders as caches
from tests.workflows.model_replica import builders as replicas
from workflows.endpoint_directory.state import DirectoryState, KnownService
from workflows.inference_cluster.state import ClusterState
from workflows.model_cache.sites import new_staging
from workflows.model_cache.spec import artifact_of, reference_of
from workflows.model_cache.state import CacheState, CacheUser, PinnedRevision
from workflows.model_deployment.state import DeploymentState, TrackedReplica
from workflows.model_replica.state import ApplyInputs, ModelReplicaState

pytestmark = pytest.mark.testbed("shared")

REPLICA = EntityRef[ModelReplicaSignals]("modelreplica/ml/qwen-eu-0")
DEPLOYMENT = EntityRef[ModelDeploymentSignals]("modeldeployment/ml/qwen")
CLUSTER = EntityRef[InferenceClusterSignals]("inferencecluster/eu-1")
CACHE, OTHER_CACHE = (
    EntityRef[ModelCacheSignals]("modelcache/ml/a"),
    EntityRef[ModelCacheSignals]("modelcache/ml/b"),
)
SERVICE, DIRECTORY = (
    EntityRef[ModelServiceSignals]("modelservice/ml/s"),
    endpoint_directory("ml"),
)
CLASS, OTHER_CLASS = (
    EntityRef[InferenceClassSignals]("inferenceclass/h100-8x"),
    EntityRef[InferenceClassSignals]("inferenceclass/b200-8x"),
)

CACHE_SPEC: Json = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model", "sizeGiB": 20},
    "clusterSelector": {"matchLabels": {"tier": "gold"}},
}


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[UndoneTasks]:
    async with undone_tasks() as tasks:
        yield tasks


@pytest.fixture
async def tasks(served: UndoneTasks) -> AsyncIterator[UndoneTasks]:
    """Terminate all workflows after a test, because the next one reuses their ids."""
    yield served
    await served.end_all()


def applied(
    to: EntityRef[Any], kind: str, spec: Json, **metadata: Any
) -> SignalRequest:
    """Return the signal with which a user applies a spec."""
    _, *scope, name = to.workflow_id.split("/")
    metadata = {"name": name, **({"namespace": scope[0]} if scope else {}), **metadata}
    document = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }
    return EntitySignals.SET_SPEC.request(to, SetSpec(manifest=document))


# Registrations


def template(generation: int, cache: str) -> SetTemplate:
    member = {
        "nodePoolName": "h100",
        "template": {
            "spec": {
                "containers": [{"name": "engine", "image": "registry.example/engine:1"}]
            }
        },
    }
    spec = {
        "clusterName": "eu",
        "engines": [{"name": "main", "members": [member]}],
        "modelCacheRef": {"name": cache},
    }
    return SetTemplate(uid="u", generation=generation, spec=spec)


def mounting_replica() -> ModelReplicaState:
    """Return a replica whose pods mount a claim of a cache, on an unreachable cluster."""
    mounted = {
        "cache_registered": "a",
        "cache_mounted": ["claim-1"],
        "cache_claim": "claim-1",
        "cluster": None,
    }
    return replicas.a_replica(
        spec=template(1, "a").spec, applied_inputs=ApplyInputs("claim-1", {}), **mounted
    )


def unserved_cluster(**fields: Any) -> ClusterState:
    """Return a cluster whose task queue no worker serves, so that nothing waits for it."""
    return clusters.a_cluster(
        unserved_queue=cluster_queue("", ClusterWork.CALL), **fields
    )


def is_registered(uses: list[CacheUse]) -> bool:
    return bool(uses) and uses[-1].used and uses[-1].claims == ["claim-1"]


def is_withdrawn(uses: list[CacheUse] | list[ClassUse]) -> bool:
    return bool(uses) and not uses[-1].used


@pytest.mark.parametrize(
    "used",
    [False, True],
    ids=["when it has unregistered", "when it has registered at the other one"],
)
async def test_a_cache_registers_a_replica_whose_template_briefly_named_another_cache(
    tasks: UndoneTasks, *, used: bool
) -> None:
    await tasks.start_receivers(CACHE, OTHER_CACHE)
    await tasks.start(REPLICA, mounting_replica())
    back = ModelReplicaSignals.SET_TEMPLATE.request(REPLICA, template(3, "a"))
    tasks.interrupt(ModelCacheSignals.CACHE_USED, lambda use: use.used == used, back)
    await tasks.send(
        ModelReplicaSignals.SET_TEMPLATE.request(REPLICA, template(2, "b"))
    )
    await tasks.until_received(CACHE, ModelCacheSignals.CACHE_USED, is_registered)
    await tasks.until_received(OTHER_CACHE, ModelCacheSignals.CACHE_USED, is_withdrawn)


@pytest.mark.parametrize(
    "used",
    [False, True],
    ids=["when it has unregistered", "when it has registered at the other one"],
)
async def test_a_class_registers_a_cluster_whose_spec_briefly_named_another_class(
    tasks: UndoneTasks, *, used: bool
) -> None:
    await tasks.start_receivers(CLASS, OTHER_CLASS)
    await tasks.start(CLUSTER, unserved_cluster(registered_classes=["h100-8x"]))
    back = applied(CLUSTER, "InferenceCluster", clusters.a_spec())
    tasks.interrupt(
        InferenceClassSignals.CLASS_USED, lambda use: use.used == used, back
    )
    await tasks.send(
        applied(
            CLUSTER,
            "InferenceCluster",
            clusters.a_spec(clusters.a_pool(class_name="b200-8x")),
        )
    )
    await tasks.until_received(
        OTHER_CLASS, InferenceClassSignals.CLASS_USED, is_withdrawn
    )
    await tasks.until_received(
        CLASS, InferenceClassSignals.CLASS_USED, lambda uses: not uses or uses[-1].used
    )


async def test_a_cluster_registers_a_cache_that_briefly_did_not_select_it(
    tasks: UndoneTasks,
) -> None:
    staging = new_staging(caches.a_site(labels={})).model_copy(
        update={"registered": True}
    )
    cache = CacheState(
        uid="u",
        generation=1,
        spec=CACHE_SPEC,
        surveyed=True,
        announcements=2,
        stagings={"eu-1": staging},
    )
    cache.pin = PinnedRevision(
        reference=reference_of(artifact_of("ml", "a", cache)), revision="c1"
    )
    selected = ModelCacheSignals.CLUSTER_CHANGED.request(
        CACHE, caches.a_site(sequence=2)
    )
    tasks.interrupt(
        InferenceClusterSignals.CACHE_STAGED, lambda report: not report.staged, selected
    )
    await tasks.start_receivers(CLUSTER)
    await tasks.start(CACHE, cache)
    await tasks.until_received(
        CLUSTER,
        InferenceClusterSignals.CACHE_STAGED,
        lambda reports: len(reports) > 1 and reports[-1].staged,
    )


# Reports that are sent when they differ from the last one


async def test_the_scheduler_has_the_final_labels_after_a_brief_change(
    tasks: UndoneTasks,
) -> None:
    def labelled(**labels: str) -> SignalRequest:
        state = unserved_cluster()
        return applied(
            CLUSTER,
            "InferenceCluster",
            clusters.a_spec(),
            labels=labels,
            annotations=state.annotations,
        )

    def labels_of(report: ReportCluster) -> dict[str, str]:
        labels: dict[str, str] = report.manifest["metadata"].get("labels", {})
        return labels

    await tasks.start_receivers(CLASS, FLEET_SCHEDULER)
    await tasks.start(CLUSTER, unserved_cluster(registered_classes=["h100-8x"]))
    iron, gold = {"tier": "iron"}, {"tier": "gold"}
    await tasks.send(labelled(**iron))
    await tasks.until_received(
        FLEET_SCHEDULER,
        FleetSchedulerSignals.REPORT_CLUSTER,
        lambda reports: bool(reports) and labels_of(reports[-1]) == iron,
    )
    tasks.interrupt(
        FleetSchedulerSignals.REPORT_CLUSTER,
        lambda report: labels_of(report) == gold,
        labelled(**iron),
    )
    await tasks.send(labelled(**gold))
    await tasks.until_received(
        FLEET_SCHEDULER,
        FleetSchedulerSignals.REPORT_CLUSTER,
        lambda reports: bool(reports) and labels_of(reports[-1]) == iron,
    )


async def test_a_deployment_has_the_final_cache_selector_after_a_brief_change(
    tasks: UndoneTasks,
) -> None:
    def selecting(tier: str) -> SignalRequest:
        return applied(
            CACHE,
            "ModelCache",
            {**CACHE_SPEC, "clusterSelector": {"matchLabels": {"tier": tier}}},
        )

    user = CacheUser(workflow_id=DEPLOYMENT.workflow_id)
    await tasks.start_receivers(DEPLOYMENT)
    await tasks.start(
        CACHE,
        CacheState(
            uid="u",
            generation=1,
            spec=CACHE_SPEC,
            surveyed=True,
            announcements=2,
            users={"d": user},
        ),
    )
    await tasks.until_received(DEPLOYMENT, ModelDeploymentSignals.CACHE_CHANGED, bool)
    tasks.interrupt(
        ModelDeploymentSignals.CACHE_CHANGED,
        lambda report: report.match_labels == {"tier": "iron"},
        selecting("gold"),
    )
    await tasks.send(selecting("iron"))
    await tasks.until_received(
        DEPLOYMENT,
        ModelDeploymentSignals.CACHE_CHANGED,
        lambda reports: reports[-1].match_labels == {"tier": "gold"},
    )


async def test_a_deployment_sees_a_replica_ready_that_was_briefly_unready(
    tasks: UndoneTasks,
) -> None:
    def seen(number: int, ready: int) -> SignalRequest:
        order = ObservationOrder(cluster="eu", cluster_uid="c", run=1, sequence=number)
        report = Observed(
            owner_uid="u",
            order=order,
            digest=str(number),
            replica=replicas.observed(ready=ready),
        )
        return ModelReplicaSignals.OBSERVED.request(REPLICA, report)

    await tasks.start_receivers(DEPLOYMENT)
    await tasks.start(REPLICA, replicas.a_replica())
    await tasks.until_received(DEPLOYMENT, ModelDeploymentSignals.REPLICA_CHANGED, bool)
    tasks.interrupt(
        ModelDeploymentSignals.REPLICA_CHANGED,
        lambda report: not report.ready,
        seen(2, ready=1),
    )
    await tasks.send(seen(1, ready=0))
    await tasks.until_received(
        DEPLOYMENT,
        ModelDeploymentSignals.REPLICA_CHANGED,
        lambda reports: reports[-1].ready,
    )


async def test_a_service_lists_an_endpoint_that_briefly_had_no_backend(
    tasks: UndoneTasks,
) -> None:
    def reported(number: int, backend: str) -> SignalRequest:
        endpoint = Endpoint(
            name="a", uid="e", url="https://api.example.com", backend=backend
        )
        report = EndpointReport(
            owner="ModelEndpoint", name="a", uid="e", sequence=number, endpoint=endpoint
        )
        return EndpointDirectorySignals.REPORT_ENDPOINT.request(DIRECTORY, report)

    def listed(message: ServiceEndpoints) -> list[str]:
        return [
            endpoint.name for entry in message.entries for endpoint in entry.endpoints
        ]

    service = KnownService(
        version=MessageVersion(uid="u", sequence=1),
        sequence=1,
        entries=[EntrySelection()],
    )
    await tasks.start_receivers(SERVICE)
    await tasks.start(
        DIRECTORY, DirectoryState(surveyed=True, services={"s": service}, dirty=["s"])
    )
    await tasks.send(reported(1, "me-a"))
    lists = ModelServiceSignals.ENDPOINTS_CHANGED
    await tasks.until_received(
        SERVICE, lists, lambda sent: bool(sent) and listed(sent[-1]) == ["a"]
    )
    tasks.interrupt(lists, lambda message: not listed(message), reported(3, "me-a"))
    await tasks.send(reported(2, ""))
    sent = await tasks.until_received(
        SERVICE, lists, lambda sent: listed(sent[-1]) == ["a"] and len(sent) > 2
    )
    assert [] in map(listed, sent)


# Orders of a deployment to its replicas


def deployed(
    image: str = "registry.example/engine:1", **metadata: Any
) -> SignalRequest:
    document = a_deployment("qwen", "ml", image=image)
    document["spec"]["template"]["metadata"] = metadata
    return EntitySignals.SET_SPEC.request(DEPLOYMENT, SetSpec(manifest=document))


def entry_with(template: str) -> Json:
    placed = {
        "namespace": "ml",
        "deployment": "qwen",
        "cluster": "eu",
        "index": 0,
        "name": "qwen-eu-0",
    }
    return {
        "uid": "u",
        **placed,
        "template": template,
        "engines": [
            {"engine": "main", "members": [{"role": "Standalone", "pool": "h100"}]}
        ],
    }


async def start_deployment(tasks: UndoneTasks) -> None:
    """Start a deployment whose replica runs its first generation."""
    replica = TrackedReplica(
        uid="u",
        name="qwen-eu-0",
        cluster="eu",
        index=0,
        generation=1,
        entry=entry_with("first"),
        started=True,
        bound=True,
    )
    await tasks.start_receivers(REPLICA, FLEET_SCHEDULER)
    await tasks.start(
        DEPLOYMENT, DeploymentState(uid="d", adopted=True, replicas={"u": replica})
    )
    await tasks.send(deployed())
    await tasks.until_received(FLEET_SCHEDULER, FleetSchedulerSignals.PLACE, bool)


async def test_a_replica_has_the_final_labels_of_its_deployment_after_a_brief_change(
    tasks: UndoneTasks,
) -> None:
    await start_deployment(tasks)
    tasks.interrupt(
        ModelReplicaSignals.SET_LABELS,
        lambda sent: sent.labels == {"team": "a"},
        deployed(),
    )
    await tasks.send(deployed(labels={"team": "a"}))
    await tasks.until_received(
        REPLICA, ModelReplicaSignals.SET_LABELS, lambda sent: sent[-1].labels == {}
    )


async def test_the_scheduler_knows_the_sent_template_though_the_previous_one_is_back(
    tasks: UndoneTasks,
) -> None:
    await start_deployment(tasks)
    await tasks.send(deployed(image="registry.example/engine:2"))
    requests = await tasks.until_received(
        FLEET_SCHEDULER,
        FleetSchedulerSignals.PLACE,
        lambda requests: requests[-1].generation == 2,
    )
    placement = ReplicaPlacement(
        uid="u",
        name="qwen-eu-0",
        cluster="eu",
        index=0,
        action="Update",
        entry=entry_with("second"),
    )
    answer = PlacementResponse(
        request_id=requests[-1].request_id,
        epoch=1,
        generation=2,
        placements=[placement],
    )
    tasks.interrupt(
        ModelReplicaSignals.SET_TEMPLATE, lambda sent: sent.generation == 2, deployed()
    )
    await tasks.send(ModelDeploymentSignals.PLACED.request(DEPLOYMENT, answer))
    requests = await tasks.until_received(
        FLEET_SCHEDULER,
        FleetSchedulerSignals.PLACE,
        lambda requests: requests[-1].generation == 3,
    )
    assert [known.template for known in requests[-1].kept] == ["second"]
