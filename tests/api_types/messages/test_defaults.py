"""The defaults of omitted fields in recorded histories and older messages.

Another default would change the meaning of these messages for the workflows that read
them.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from api_types import messages
from api_types.base import Message

# All other fields default to an empty value: "", 0, False, None, or no items.
MEANING = {
    "CacheSite.scheduler_type": "none",
    "CacheSite.present": True,
    "CacheSite.evict_grace_seconds": 600,
    "CacheOnCluster.staged": True,
    "CacheUse.used": True,
    "CacheChanged.present": True,
    "ApplyCache.scheduler_type": "none",
    "ApplyCache.hydrate": True,
    "CapacityQueue.nominal": -1,
    "CapacityQueue.limit": -1,
    "CapacityQueue.free": -1,
    "CapacityQueue.active": True,
    "CloudObject.work": "Quick",
    "CloudObjectShown.phase": "Waiting",
    "CloudObjectState.phase": "Waiting",
    "CloudReport.phase": "Pending",
    "CloudPlan.drift_seconds": 600,
    "CloudPlan.quota_seconds": 900,
    "CloudPlan.capacity_seconds": 600,
    "CloudPlan.parallel": 6,
    "CloudPlan.drain_seconds": 1800,
    "CloudPlan.rebuilds": 1,
    "CloudPlan.audit_rounds": 3,
    "CloudObjectOrder.create": True,
    "Leftover.blocks": True,
    "Identity.key": "private_key",
    "Connection.key": "kubeconfig",
    "ClusterFacts.routing": "pool",
    "ClusterFacts.scheduler_type": "none",
    "ClusterFacts.mesh_provider": "none",
    "ClusterFacts.withdraw_after_seconds": 300,
    "ClusterFacts.drain_seconds": 15,
    "ClusterFacts.cache_evict_grace_seconds": 600,
    "ClusterFacts.gateway_scheme": "http",
    "Connect.capacity_adapter": "none",
    "Connect.scheduler_type": "none",
    "WatchCluster.capacity_adapter": "none",
    "AppliedEngine.size": 1,
    "RecordEvent.type": "Normal",
    "Force.scope": "step",
    "ClassUse.used": True,
    "ClassChanged.price_milli": -1,
    "ClusterChanged.present": True,
    "RouteEntry.weight": 1,
    "RouteRetries.attempts": 1,
    "RouteRetries.backoff_milliseconds": 100,
    "ObservedCluster.reachable": True,
    "ObservedJob.state": "Running",
    "GatewayUse.used": True,
    "GatewayChanged.present": True,
    "GatewayChanged.isolates_backends": True,
    "GatewayChanged.backend": "Traefik",
    "RunInstallStep.backend": "Traefik",
    "ReplicaAccount.started": True,
    "UninstallRelease.wait_seconds": 10,
    "CheckStack.poll_seconds": 5,
    "CheckStack.max_seconds": 300,
    "Lag.gates": True,
    "StackSeen.upgrades_at_once": 1,
    "RemoveStackObjects.wait_seconds": 10,
    "AwaitNoRoutes.wait_seconds": 10,
    "PurgeDefinitions.wait_seconds": 10,
    "UpgradeRequest.wanted": True,
    "UpgradeRequest.at_once": 1,
}


def defaults() -> Iterator[tuple[str, Any]]:
    for found in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{found.name}")
        classes = [each for each in vars(module).values() if isinstance(each, type)]
        for model in classes:
            if issubclass(model, Message) and model.__module__ == module.__name__:
                yield from fields_of(model)


def fields_of(model: type[Message]) -> Iterator[tuple[str, Any]]:
    """Return the defaults of the fields that a model declares itself."""
    for name in model.__annotations__.keys() & model.model_fields.keys():
        field = model.model_fields[name]
        if not field.is_required():
            yield (
                f"{model.__name__}.{name}",
                field.get_default(call_default_factory=True),
            )


def test_an_omitted_field_is_empty_or_has_a_listed_default() -> None:
    stated = {
        name: value for name, value in defaults() if not isinstance(value, Message)
    }
    assert {name: value for name, value in stated.items() if value} == MEANING
