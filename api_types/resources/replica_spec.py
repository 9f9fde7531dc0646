"""The spec of a ModelReplica, from the template of its deployment and a placement.

The template has the needs of each member. The placement has its pool and the claimed
requests. All other fields are copied unchanged: the cluster matches selectors again, so
their text must stay the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_COPIED = ("modelCacheRef", "serving", "disruption")
_MEMBER_COPIED = ("role", "worker", "template", "podsPerNode", "probes")


class EngineSize(NamedTuple):
    """The number of copies of an engine, and the number of devices per copy."""

    copies: int
    devices: int


def replica_spec(
    template: Mapping[str, Any], cluster: str, engines: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the spec for a template and one placement.

    Args:
        template: `spec.template.spec` of a ModelDeployment.
        cluster: the InferenceCluster of the placement.
        engines: the engines of a `ReplicaPlacement`, in any order.

    """
    placed = {engine["engine"]: engine["members"] for engine in engines}
    spec: dict[str, Any] = {"clusterName": cluster}
    spec |= {field: template[field] for field in _COPIED if field in template}
    spec["engines"] = [
        _engine(engine, placed[engine["name"]]) for engine in template["engines"]
    ]
    return spec


def _engine(
    engine: Mapping[str, Any], places: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    filled = {
        field: value
        for field, value in engine.items()
        if field not in ("members", "spanPools")
    }
    filled["members"] = [
        _member(member, place)
        for member, place in zip(engine["members"], places, strict=True)
    ]
    return filled


def engine_sizes(spec: Mapping[str, Any]) -> dict[str, EngineSize]:
    """Return the copies and devices of each engine in the spec of a ModelReplica."""
    return {
        engine["name"]: EngineSize(
            int(engine.get("copies", 1)), _devices_per_copy(engine)
        )
        for engine in spec.get("engines", ())
    }


def _devices_per_copy(engine: Mapping[str, Any]) -> int:
    members: Sequence[Mapping[str, Any]] = engine.get("members", ())
    devices = 0
    for member in members:
        nodes = int((member.get("worker") or {}).get("nodes", 1))
        for request in member.get("deviceRequests", ()):
            devices += int(request.get("count", 1)) * nodes
    return devices


def pods_source(spec: Mapping[str, Any], *engines: Mapping[str, Any]) -> list[Any]:
    """Return the part of a replica's spec from which engines' pods are made.

    Fields that change without replacing pods are omitted.
    """
    shared = [(spec.get("serving") or {}).get("mode"), spec.get("modelCacheRef")]
    return [shared, [_pods_of(engine) for engine in engines]]


def _pods_of(engine: Mapping[str, Any]) -> dict[str, Any]:
    source = {field: value for field, value in engine.items() if field != "copies"}
    adapters = source.get("adapters")
    if adapters:
        # Only the endpoint picker reads the public names.
        source["adapters"] = [
            {field: value for field, value in adapter.items() if field != "modelNames"}
            for adapter in adapters
        ]
    return source


def _member(member: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {
        field: member[field] for field in _MEMBER_COPIED if field in member
    }
    filled["nodePoolName"] = place["pool"]
    requests = [_request(request) for request in place.get("requests", ())]
    # An empty list would be rejected.
    if requests:
        filled["deviceRequests"] = requests
    return filled


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    resolved: dict[str, Any] = {"name": request["name"]}
    if request.get("resourceName"):
        resolved["resourceName"] = request["resourceName"]
    elif request.get("deviceClass"):
        resolved["deviceClassName"] = request["deviceClass"]
    resolved["count"] = request.get("count", 1)
    selectors = [{"cel": text} for text in request.get("selectors", ())]
    if selectors:
        resolved["selectors"] = selectors
    return resolved
