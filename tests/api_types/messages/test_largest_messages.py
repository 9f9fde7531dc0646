"""The largest valid message of every type fits a payload, or its list is split.

Every message of `api_types/messages` is built with each of its fields as large as
admission and the workflows permit, and with texts that do not compress. A new message
or field needs an entry here with its largest size.
"""

import importlib
import pkgutil
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, get_args, get_origin

import pytest

from api_types import messages
from api_types.base import Message
from api_types.limits import (
    CLASS_BYTES_MAX,
    REPLICAS_MAX,
    ROUTE_BACKENDS_MAX,
    SELECTORS_BYTES_MAX,
)
from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.messages.entities import (
    SetSpec,
    SetTemplate,
    StartReplica,
    StartReplicas,
)
from api_types.messages.gateway_work import ApplyRoute, RouteEntry
from api_types.messages.routing import (
    EntryEndpoints,
    SelectedEndpoint,
    ServiceEndpoints,
)
from api_types.messages.scheduling import (
    Bound,
    KnownReplica,
    Occupied,
    PlacementRequest,
    PlacementResponse,
    ReplicaAccount,
    ReplicaEviction,
    ReplicaPlacement,
    ReportCluster,
)
from api_types.payloads.limits import (
    MANIFEST_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    split_by_size,
    wire_size,
)

CLUSTERS = 400
POOLS = 8
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


@cache
def text(size: int, seed: object = "") -> str:
    """Return a text that does not compress.

    It depends only on the seed and the size.
    """
    draws = random.Random(f"{seed}/{size}")  # noqa: S311 - repeatable on purpose
    return "".join(draws.choices(ALPHABET, k=size))


# The shared parts of all replicas of one deployment: labels, selectors, environment.
LABELS = [(text(253, n), text(63, n)) for n in range(32)]


@cache
def requests() -> list[dict[str, Any]]:
    """Return the requests of a member, with the maximum number and size."""
    return [
        {
            "name": text(63, n),
            "deviceClass": text(253, n),
            "count": 8,
            "selectors": [text(SELECTORS_BYTES_MAX // 8, n)],
        }
        for n in range(8)
    ]


@cache
def manifest() -> dict[str, Any]:
    """Return a manifest of the maximum size."""
    return {"spec": text(MANIFEST_BYTES_MAX - 100)}


@cache
def entry(replica: int) -> dict[str, Any]:
    """Return the ledger entry of a replica with two engines of two members each.

    Each replica is on the pools of its own cluster.
    """
    members = [
        {
            "role": role,
            "pool": text(63, f"{replica % CLUSTERS}/{role}"),
            "requests": requests(),
            "need": text(16),
            "draw": [[text(63), 8]],
        }
        for role in ("Leader", "Worker")
    ]
    return {
        "uid": text(36, replica),
        "namespace": text(63),
        "deployment": text(63),
        "cluster": text(63, replica % CLUSTERS),
        "index": replica,
        "name": text(63, replica),
        "engines": [
            {"engine": text(63, name), "members": members} for name in range(2)
        ],
        "template": text(16),
        "labels": [list(label) for label in LABELS],
        "origin": [text(36), text(60)],
    }


def identity(replica: int) -> dict[str, Any]:
    found = entry(replica)
    return {field: found[field] for field in ("uid", "name", "cluster", "index")}


def start(replica: int) -> StartReplica:
    """Return the start of a replica whose environment has 130 kB."""
    return StartReplica(
        **identity(replica),
        namespace=text(63),
        deployment=text(63),
        deployment_uid=text(36),
        generation=1,
        spec={"env": text(130_000)},
        entry=entry(replica),
        labels=dict(LABELS),
    )


def placements(count: int) -> list[ReplicaPlacement]:
    return [
        ReplicaPlacement(
            **identity(n),
            action="Create",
            entry=entry(n),
            after=[text(36, f"after {n}")],
        )
        for n in range(count)
    ]


def evictions(count: int) -> list[ReplicaEviction]:
    return [
        ReplicaEviction(
            uid=text(36, n),
            name=text(63, n),
            cluster=text(63, n % CLUSTERS),
            reason=text(200),
        )
        for n in range(count)
    ]


def report() -> ReportCluster:
    """Return a report of eight pools, each of another class of the maximum size."""
    metadata = {
        "annotations": {"a": text(MANIFEST_BYTES_MAX - 20_000)},
        "labels": dict(LABELS),
    }
    pools = [
        {
            "name": text(63, n),
            "nodes": 1_000,
            "devices": [{"attributes": text(CLASS_BYTES_MAX, n)}],
        }
        for n in range(POOLS)
    ]
    manifest = {
        "metadata": metadata,
        "spec": {"nodePools": [{"name": text(63, n)} for n in range(POOLS)]},
        "status": {"gpuPools": pools},
    }
    return ReportCluster(name=text(63), uid=text(36), sequence=1, manifest=manifest)


def selected(entry: int) -> list[SelectedEndpoint]:
    return [
        SelectedEndpoint(
            name=text(63, f"{entry}/{n}"),
            url=text(1024, n),
            backend=text(63, n),
            rewrite_path=text(1024, n),
            cluster=text(63, n),
        )
        for n in range(ROUTE_BACKENDS_MAX)
    ]


# The bounds of messages that have no largest instance below.
BOUNDS = {
    "CloudAudit": "LEFTOVERS_MAX of ids and short texts",
    "CloudObject": "the arguments of a few calls, of a pool at most",
    "CloudObjectOrder": "one of `CloudObject`, and FACTS_MAX ids of OBJECTS_MAX objects",
    "CloudObjectResult": "FACTS_MAX ids",
    "CloudObserved": "OBJECTS_MAX of ids and texts",
    "CloudOrder": "a manifest, and CLASS_BYTES_MAX for each of eight pools",
    "CloudPlan": "OBJECTS_MAX of `CloudObject`",
    "CloudReport": "OBJECTS_MAX of texts",
    "AuditCloud": "FACTS_MAX ids of OBJECTS_MAX objects",
    "ObserveCloud": "OBJECTS_MAX of `CloudObject`",
    "PlanCloud": "a manifest, and CLASS_BYTES_MAX for each of eight pools",
    "Endpoint": "labels of a manifest",
    "HoldSignals": "the signals of one `SignalBatch` for one receiver",
    "EntrySelection": "labels of a manifest",
    "ObservedNodes": "NODE_RESOURCES_MAX names",
    "ServiceReport": "the spec of a manifest",
    "GatewayFacts": "the number of networks",
    "GatewayChanged": "the number of networks",
    "EntryEndpoints": "a part of `ServiceEndpoints`",
    "Routed": "ROUTE_BACKENDS_MAX",
    "RouteEntry": "a part of `ApplyRoute`",
    "RouteRetries": "the codes that there are",
    "AppliedRoute": "ROUTE_BACKENDS_MAX",
    "HelmRelease": "values that `activities/render/stack/values.py` makes, of a page",
    "EnsuredRelease": "64 names of workloads",
    "InstalledRelease": "64 names of workloads",
    "UninstallRelease": "64 names of workloads, and constants",
    "PreflightStack": "32 names",
    "StackPlan": "32 of `HelmRelease`",
    "ApplyStackObjects": "the record of a stack, whose fields are bounded",
    "ApplyChartCrds": "32 of `HelmRelease`",
    "StackApplied": "20 notes",
    "CheckStack": "32 of `InstalledRelease`",
    "StackSeen": "64 of `Lag`, and as many texts",
    "RemoveStackObjects": "the record of a stack, and 64 ids",
    "PurgeDefinitions": "32 of `HelmRelease`, and 64 ids",
    "PurgedDefinitions": "objects of one step, and DEFINITIONS_KEPT_MAX",
    "LoadBalancers": "64 names",
    "UpgradeTurn": "HOLDERS_SHOWN_MAX names",
    "CacheSite": "labels of a manifest",
    "CacheAccount": "a name per cluster",
    "CacheUse": "a name per volume of one replica",
    "CacheChanged": "labels of a manifest, a word per cluster",
    "ResolveRevision": "the spec of a manifest",
    "ApplyCache": "the spec of a manifest",
    "AwaitCredential": "the six references that a spec may have at most",
    "CacheApplied": "constant texts, and a uid for each of three objects",
    "DeleteCacheObjects": "steps are constants",
    "CacheObjectsDeleted": "a claim per artifact of one cache",
    "CapacityPool": "a number per count of devices on a node",
    "CapacityQueue": "the names of one cluster's tenants and pools",
    "CapacitySnapshot": (
        "an item per pool and queue, packed admissions; "
        "`tests/activities/clusters/capacity/test_large_cluster.py`"
    ),
    "ClusterFacts": "kinds that we apply, and device classes of eight pools",
    "WatchCluster": "eight pools",
    "NodeLocal": "the spec of a manifest",
    "ApplyReplica": "the spec of a manifest, and objects of one replica",
    "AppliedEngine": "two members",
    "Applied": "objects of one replica",
    "RunTeardownStep": "objects of one replica",
    "TeardownStepResult": "objects of one replica",
    "PruneResult": "objects of one replica",
    "SignalRequest": "one other message",
    "SignalBatch": "split by size",
    "SignalBatchResult": "a workflow id per signal of a batch",
    "Broadcast": "one other message",
    "Scale": "a number",
    "Replace": "a manifest",
    "SetLabels": "labels and one annotation of a manifest",
    "ClassChanged": "CLASS_BYTES_MAX",
    "StartReplicas": "split by size",
    "StartedReplicas": "a name per replica of a batch",
    "ReplicaChanged": "LEFT_BEHIND_KEPT",
    "ObservedWorkload": "a hash per member and revision",
    "ObservedReplica": "objects of one replica",
    "ObservedCluster": "an item per pool",
    "ObservedCache": "a volume and a Job per artifact",
    "ReplicaEviction": "a part of an answer",
    "ReplicaPlacement": "a part of an answer",
    "ReportClass": "CLASS_BYTES_MAX",
    "SetPolicy": "POLICY_BYTES_MAX",
    "MessageVersion": "SUPERSEDED_MAX",
}

# Created on demand: together they take most of a second, in each process that collects
# tests.
WHOLE: dict[str, Callable[[], Message]] = {
    "an answer with a thousand placements": lambda: PlacementResponse(
        request_id=text(60),
        epoch=1,
        generation=1,
        placements=placements(REPLICAS_MAX),
        message=text(2_000),
    ),
    "an answer that evicts a thousand replicas": lambda: PlacementResponse(
        request_id=text(60), epoch=1, generation=1, evictions=evictions(REPLICAS_MAX)
    ),
    "a request of a deployment with a thousand replicas": lambda: PlacementRequest(
        request_id=text(60),
        namespace=text(63),
        name=text(63),
        uid=text(36),
        generation=1,
        wanted=REPLICAS_MAX,
        need={"engines": text(MANIFEST_BYTES_MAX)},
        kept=[
            KnownReplica(
                uid=text(36, n),
                name=text(63, n),
                cluster=text(63, n % CLUSTERS),
                template=text(16, n % 3),
                ready=True,
            )
            for n in range(REPLICAS_MAX)
        ],
        returned=[text(36, f"returned {n}") for n in range(REPLICAS_MAX)],
    ),
    "the entries of a thousand started replicas": lambda: Bound(
        entries={entry(n)["uid"]: entry(n) for n in range(REPLICAS_MAX)}
    ),
    "the start of one replica": lambda: start(0),
    "the template of one replica": lambda: SetTemplate(
        generation=2, spec=manifest(), entry=entry(0), labels=dict(LABELS)
    ),
    "the account of one replica": lambda: ReplicaAccount(
        **identity(0), namespace=text(63), deployment=text(63), entry=entry(0)
    ),
    "the report of a cluster with eight classes": report,
    "the replicas on a cluster that is being deleted": lambda: Occupied(
        cluster=text(63),
        sequence=1,
        replicas=[f"{text(63)}/{text(54)}-{text(8, n)}" for n in range(POOLS * 1_000)],
    ),
    "the endpoints of a service": lambda: ServiceEndpoints(
        uid=text(36),
        sequence=1,
        version=1,
        entries=[
            EntryEndpoints(endpoints=selected(n)) for n in range(ROUTE_BACKENDS_MAX)
        ],
    ),
    "the route of a service": lambda: ApplyRoute(
        namespace=text(63),
        name=text(63),
        uid=text(36),
        entries=[RouteEntry(endpoints=selected(n)) for n in range(ROUTE_BACKENDS_MAX)],
    ),
    "a manifest": lambda: SetSpec(
        request_id=text(36), by=text(63), manifest=manifest()
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", WHOLE)
def test_the_largest_lawful_message_is_one_payload_and_comes_back_whole(
    what: str,
) -> None:
    message = WHOLE[what]()
    assert wire_size(message.wire()) <= PAYLOAD_BYTES_MAX
    assert wire_size(message) <= PAYLOAD_BYTES_MAX
    assert type(message).model_validate(message.wire()) == message
    split_by_size(
        [SignalRequest(workflow_id=text(200), signal="s", payload=message.wire())],
        name=str,
    )


def test_starts_and_templates_of_many_replicas_are_split() -> None:
    starts = [start(n) for n in range(17)]
    batches = split_by_size(starts, name=lambda each: each.name)
    assert [each.name for batch in batches for each in batch] == [
        each.name for each in starts
    ]
    assert all(
        wire_size(StartReplicas(replicas=batch)) <= PAYLOAD_BYTES_MAX
        for batch in batches
    )
    template = SetTemplate(
        generation=2, spec={"env": text(130_000)}, entry=entry(0)
    ).wire()
    signals = [
        SignalRequest(workflow_id=text(200, n), signal="set_template", payload=template)
        for n in range(17)
    ]
    batches_of_signals = split_by_size(signals, name=str)
    assert all(
        wire_size(SignalBatch(signals=batch)) <= PAYLOAD_BYTES_MAX
        for batch in batches_of_signals
    )


@pytest.mark.slow
def test_every_message_that_may_grow_has_a_largest_instance_or_a_bound() -> None:
    shown = {type(made()).__name__ for made in WHOLE.values()}
    assert {model.__name__ for model in growing()} == shown | set(BOUNDS)
    assert shown.isdisjoint(BOUNDS)


def growing() -> Iterator[type[Message]]:
    """Yield the messages with a collection, or with a tree of arbitrary JSON."""
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        for model in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(model, type)
                and issubclass(model, Message)
                and model.__module__ == module.name
            ):
                annotations = [
                    field.annotation for field in model.model_fields.values()
                ]
                if any(
                    {list, dict, Any} & set(parts(annotation))
                    for annotation in annotations
                ):
                    yield model


def parts(annotation: Any) -> Iterator[Any]:
    """Yield the types of an annotation, with containers as their origin."""
    yield get_origin(annotation) or annotation
    for argument in get_args(annotation):
        yield from parts(argument)
