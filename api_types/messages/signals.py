"""The signals of this project: their receivers, wire names and messages.

There is one class per receiving kind, with one entry per signal. Senders and handlers
both use the entry, so the type checker compares a message with the type that its
receiver reads. A class is also the type of its receiver:
`EntityRef[ModelReplicaSignals]` is a ModelReplica, and signals for all entities are
inherited. The wire names are stable: an entry may be renamed, its string may not.
"""

from typing import Any

from api_types.messages.caches import (
    CacheChanged,
    CacheOnCluster,
    CacheReport,
    CacheSite,
    CacheUse,
)
from api_types.messages.clouds import CloudDelete, CloudOrder, CloudReport
from api_types.messages.delivery import (
    Delivery,
    EntityRef,
    HoldSignals,
    Receiver,
    Signal,
    entity,
)
from api_types.messages.entities import (
    CancelRequested,
    CheckReplicas,
    ClassChanged,
    ClassUse,
    ClusterChanged,
    Delete,
    Force,
    ForceFinalizer,
    Keep,
    RecordEvent,
    ReplicaChanged,
    RetryNow,
    Scale,
    SecretsChanged,
    SetLabels,
    SetSpec,
    SetTemplate,
)
from api_types.messages.gateway_work import ControlObserved
from api_types.messages.observations import Observed
from api_types.messages.routing import (
    EndpointReport,
    EndpointWithdrawn,
    GatewayChanged,
    GatewayUse,
    Routed,
    ServiceEndpoints,
    ServiceReport,
)
from api_types.messages.scheduling import (
    Bound,
    Evict,
    Forget,
    Forgotten,
    Occupied,
    PlacementRequest,
    PlacementResponse,
    Released,
    ReportClass,
    ReportCluster,
    Resync,
    Revoke,
    Revoked,
    SetPolicy,
)
from api_types.messages.upgrades import UpgradeRequest, UpgradeTurn
from api_types.names import (
    FLEET_SCHEDULER_ID,
    STACK_UPGRADES_ID,
    cloud_cluster_id,
    endpoint_directory_id,
    redelivery_id,
)
from api_types.resources.inference_gateway import SINGLETON_NAME as GATEWAY_NAME

CANCEL_REQUESTED = "cancel_requested"
"""The signal that a workflow receives for a request to cancel it.

A workflow without this signal ignores the request.
"""

# Signals for several kinds.


class SenderSignals(Receiver):
    """Every workflow that signals others.

    `DELIVERY` reports whether a receiver refuses signals.
    """

    DELIVERY = Signal["SenderSignals", Delivery]("delivery", Delivery)


class EntitySignals(SenderSignals):
    """Every entity."""

    SET_SPEC = Signal["EntitySignals", SetSpec]("set_spec", SetSpec)
    DELETE = Signal["EntitySignals", Delete]("delete", Delete)
    FORCE = Signal["EntitySignals", Force]("force", Force)
    RETRY_NOW = Signal["EntitySignals", RetryNow]("retry_now", RetryNow)
    KEEP = Signal["EntitySignals", Keep]("keep", Keep)
    CANCEL_REQUESTED = Signal["EntitySignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


class ReportingSignals(Receiver):
    """Entities that report to others.

    A signal without a message makes them repeat their reports. With a newer epoch they
    report to a new scheduler.
    """

    RESYNC = Signal["ReportingSignals", Resync | None]("resync", Resync, optional=True)


class ObservedSignals(Receiver):
    """Owners of objects on a cluster, signalled by its watch."""

    OBSERVED = Signal["ObservedSignals", Observed]("observed", Observed)


class CacheUserSignals(Receiver):
    """Users of a ModelCache."""

    CACHE_CHANGED = Signal["CacheUserSignals", CacheChanged](
        "cache_changed", CacheChanged
    )


class EndpointOwnerSignals(Receiver):
    """Owners of endpoints, signalled by the EndpointDirectory of their namespace."""

    ENDPOINT_WITHDRAWN = Signal["EndpointOwnerSignals", EndpointWithdrawn](
        "endpoint_withdrawn", EndpointWithdrawn
    )


class GatewayUserSignals(Receiver):
    """Users of the control cluster, signalled by the InferenceGateway."""

    GATEWAY_CHANGED = Signal["GatewayUserSignals", GatewayChanged](
        "gateway_changed", GatewayChanged
    )


class ControlObservedSignals(Receiver):
    """Owners of objects on the control cluster, signalled by its watch."""

    CONTROL_OBSERVED = Signal["ControlObservedSignals", ControlObserved](
        "control_observed", ControlObserved
    )


class CopyUserSignals(Receiver):
    """Users of copies of Secrets and ConfigMaps on clusters."""

    SECRETS_CHANGED = Signal["CopyUserSignals", SecretsChanged](
        "secrets_changed", SecretsChanged
    )


# Kinds


class InferenceClassSignals(EntitySignals, ReportingSignals):
    kind = "InferenceClass"

    CLASS_USED = Signal["InferenceClassSignals", ClassUse]("class_wanted", ClassUse)


class InferenceClusterSignals(EntitySignals, ReportingSignals, ObservedSignals):
    kind = "InferenceCluster"

    CLASS_CHANGED = Signal["InferenceClusterSignals", ClassChanged](
        "class_changed", ClassChanged
    )
    CACHE_STAGED = Signal["InferenceClusterSignals", CacheOnCluster](
        "cache_staged", CacheOnCluster
    )
    OCCUPIED = Signal["InferenceClusterSignals", Occupied]("occupied", Occupied)
    UPGRADE_TURN = Signal["InferenceClusterSignals", UpgradeTurn](
        "upgrade_turn", UpgradeTurn
    )
    FORCE_FINALIZER = Signal["InferenceClusterSignals", ForceFinalizer](
        "force_finalizer", ForceFinalizer
    )
    CLOUD_REPORTED = Signal["InferenceClusterSignals", CloudReport](
        "cloud_reported", CloudReport
    )


class ModelCacheSignals(EntitySignals, ObservedSignals, CopyUserSignals):
    kind = "ModelCache"

    CACHE_USED = Signal["ModelCacheSignals", CacheUse]("cache_wanted", CacheUse)
    CLUSTER_CHANGED = Signal["ModelCacheSignals", CacheSite](
        "cluster_changed", CacheSite
    )


class ModelDeploymentSignals(EntitySignals, ReportingSignals, CacheUserSignals):
    kind = "ModelDeployment"

    SCALE = Signal["ModelDeploymentSignals", Scale]("scale", Scale)
    RECORD_EVENT = Signal["ModelDeploymentSignals", RecordEvent](
        "record_event", RecordEvent
    )
    PLACED = Signal["ModelDeploymentSignals", PlacementResponse](
        "placed", PlacementResponse
    )
    REPLICA_CHANGED = Signal["ModelDeploymentSignals", ReplicaChanged](
        "replica_changed", ReplicaChanged
    )
    REVOKE = Signal["ModelDeploymentSignals", Revoke]("revoke", Revoke)
    EVICT = Signal["ModelDeploymentSignals", Evict]("evict", Evict)
    CHECK_REPLICAS = Signal["ModelDeploymentSignals", CheckReplicas](
        "check_replicas", CheckReplicas
    )
    RELEASED = Signal["ModelDeploymentSignals", Released]("released", Released)
    FORGOTTEN = Signal["ModelDeploymentSignals", Forgotten]("forgotten", Forgotten)


class ModelReplicaSignals(
    EntitySignals,
    ReportingSignals,
    ObservedSignals,
    CacheUserSignals,
    CopyUserSignals,
    EndpointOwnerSignals,
    ControlObservedSignals,
):
    kind = "ModelReplica"

    SET_TEMPLATE = Signal["ModelReplicaSignals", SetTemplate](
        "set_template", SetTemplate
    )
    SET_LABELS = Signal["ModelReplicaSignals", SetLabels]("set_labels", SetLabels)
    CLUSTER_CHANGED = Signal["ModelReplicaSignals", ClusterChanged](
        "cluster_changed", ClusterChanged
    )
    CACHE_REPORT = Signal["ModelReplicaSignals", CacheReport](
        "cache_report", CacheReport
    )


class InferenceGatewaySignals(EntitySignals, ReportingSignals, ControlObservedSignals):
    kind = "InferenceGateway"

    GATEWAY_USED = Signal["InferenceGatewaySignals", GatewayUse](
        "gateway_used", GatewayUse
    )


class ModelServiceSignals(
    EntitySignals, ReportingSignals, GatewayUserSignals, ControlObservedSignals
):
    kind = "ModelService"

    ENDPOINTS_CHANGED = Signal["ModelServiceSignals", ServiceEndpoints](
        "endpoints_changed", ServiceEndpoints
    )


class ModelEndpointSignals(
    EntitySignals,
    ReportingSignals,
    EndpointOwnerSignals,
    GatewayUserSignals,
    ControlObservedSignals,
):
    kind = "ModelEndpoint"


class EndpointDirectorySignals(SenderSignals):
    """EndpointDirectory, one per namespace."""

    kind = "EndpointDirectory"

    REPORT_ENDPOINT = Signal["EndpointDirectorySignals", EndpointReport](
        "report_endpoint", EndpointReport
    )
    REPORT_SERVICE = Signal["EndpointDirectorySignals", ServiceReport](
        "report_service", ServiceReport
    )
    ROUTED = Signal["EndpointDirectorySignals", Routed]("routed", Routed)
    CANCEL_REQUESTED = Signal["EndpointDirectorySignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


class FleetSchedulerSignals(SenderSignals):
    kind = "FleetScheduler"

    PLACE = Signal["FleetSchedulerSignals", PlacementRequest]("place", PlacementRequest)
    BOUND = Signal["FleetSchedulerSignals", Bound]("bound", Bound)
    RELEASED = Signal["FleetSchedulerSignals", Released]("released", Released)
    REVOKED = Signal["FleetSchedulerSignals", Revoked]("revoked", Revoked)
    REPORT_CLUSTER = Signal["FleetSchedulerSignals", ReportCluster](
        "report_cluster", ReportCluster
    )
    REPORT_CLASS = Signal["FleetSchedulerSignals", ReportClass](
        "report_class", ReportClass
    )
    FORGET = Signal["FleetSchedulerSignals", Forget]("forget", Forget)
    SET_POLICY = Signal["FleetSchedulerSignals", SetPolicy]("set_policy", SetPolicy)
    CANCEL_REQUESTED = Signal["FleetSchedulerSignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


class StackUpgradesSignals(SenderSignals):
    kind = "StackUpgrades"

    REQUEST_UPGRADE = Signal["StackUpgradesSignals", UpgradeRequest](
        "request_upgrade", UpgradeRequest
    )
    CANCEL_REQUESTED = Signal["StackUpgradesSignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


class CloudClusterSignals(SenderSignals):
    """CloudCluster, one per InferenceCluster that the control plane creates at a cloud."""

    kind = "CloudCluster"

    APPLY = Signal["CloudClusterSignals", CloudOrder]("apply", CloudOrder)
    DELETE = Signal["CloudClusterSignals", CloudDelete]("delete", CloudDelete)
    RETRY_NOW = Signal["CloudClusterSignals", RetryNow]("retry_now", RetryNow)
    CANCEL_REQUESTED = Signal["CloudClusterSignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


class RedeliverySignals(Receiver):
    """Redelivery, one per receiver that refuses signals."""

    kind = "Redelivery"

    HOLD = Signal["RedeliverySignals", HoldSignals]("hold", HoldSignals)
    RETRY_NOW = Signal["RedeliverySignals", RetryNow]("retry_now", RetryNow)
    CANCEL_REQUESTED = Signal["RedeliverySignals", CancelRequested](
        CANCEL_REQUESTED, CancelRequested
    )


FLEET_SCHEDULER = EntityRef[FleetSchedulerSignals](FLEET_SCHEDULER_ID)

STACK_UPGRADES = EntityRef[StackUpgradesSignals](STACK_UPGRADES_ID)

INFERENCE_GATEWAY = entity(InferenceGatewaySignals, "", GATEWAY_NAME)

ENTITIES = (
    InferenceClassSignals,
    InferenceClusterSignals,
    InferenceGatewaySignals,
    ModelCacheSignals,
    ModelDeploymentSignals,
    ModelEndpointSignals,
    ModelReplicaSignals,
    ModelServiceSignals,
)

RECEIVERS = (
    *ENTITIES,
    FleetSchedulerSignals,
    EndpointDirectorySignals,
    StackUpgradesSignals,
    CloudClusterSignals,
)
"""All kinds that other workflows signal."""


def endpoint_directory(namespace: str) -> EntityRef[EndpointDirectorySignals]:
    """Return a reference to the EndpointDirectory of a namespace.

    A signal starts it if it does not run.
    """
    return EntityRef(endpoint_directory_id(namespace))


def cloud_cluster(cluster: str, uid: str) -> EntityRef[CloudClusterSignals]:
    """Return a reference to the CloudCluster of an InferenceCluster.

    A signal starts it unless it is complete.
    """
    return EntityRef(cloud_cluster_id(cluster, uid))


def redelivery(receiver: str) -> EntityRef[RedeliverySignals]:
    """Return a reference to the Redelivery of a receiver's workflow id.

    A signal starts it if it does not run.
    """
    return EntityRef(redelivery_id(receiver))


def receiver_of(kind: str) -> type[Receiver]:
    """Return the signals class of a kind.

    Raises:
        KeyError: the kind has no workflow.

    """
    return {receiver.kind: receiver for receiver in (*RECEIVERS, RedeliverySignals)}[
        kind
    ]


def signals_of(receiver: type[Receiver]) -> dict[str, Signal[Any, Any]]:
    """Return the signals of a kind, by their wire names."""
    members = (getattr(receiver, name) for name in dir(receiver))
    return {member.name: member for member in members if isinstance(member, Signal)}
