"""The spec of a ModelReplica, from the template of its deployment and a placement.

The template has what each member needs, the placement which pool it got and which of its requests are claimed there. Everything else is
copied unchanged: selectors are matched again on the cluster, so their text must stay the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_COPIED = ("modelCacheRef", "serving", "disruption")
_MEMBER_COPIED = ("role", "worker", "template", "podsPerNode", "probes")


class EngineSize(NamedTuple):
    """How many copies an engine has, and how many devices each of them claims."""

    copies: int
    devices: int


def replica_spec(template: Mapping[str, Any], cluster: str, engines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Fill one placement into a template.

    `template` is `spec.template.spec` of a ModelDeployment; `engines` are those of a `ReplicaPlacement`, in template order or not.
    """
    placed = {engine["engine"]: engine["members"] for engine in engines}
    spec: dict[str, Any] = {"clusterName": cluster}
    spec |= {field: template[field] for field in _COPIED if field in template}
    spec["engines"] = [
        {
            **{field: value for field, value in engine.items() if field not in ("members", "spanPools")},
            "members": [_member(member, place) for member, place in zip(engine["members"], placed[engine["name"]], strict=True)],
        }
        for engine in template["engines"]
    ]
    return spec


def engine_sizes(spec: Mapping[str, Any]) -> dict[str, EngineSize]:
    """Count the copies and devices of each engine in the spec of a ModelReplica."""
    return {engine["name"]: EngineSize(int(engine.get("copies", 1)), _devices_per_copy(engine)) for engine in spec.get("engines", ())}


def _devices_per_copy(engine: Mapping[str, Any]) -> int:
    members: Sequence[Mapping[str, Any]] = engine.get("members", ())
    return sum(
        int(request.get("count", 1)) * int((member.get("worker") or {}).get("nodes", 1))
        for member in members
        for request in member.get("deviceRequests", ())
    )


def pods_source(spec: Mapping[str, Any], *engines: Mapping[str, Any]) -> list[Any]:
    """Give what pods are made from of the spec of a replica: some of its engines, but for what changes without replacing pods."""
    shared = [(spec.get("serving") or {}).get("mode"), spec.get("modelCacheRef")]
    return [shared, [_pods_of(engine) for engine in engines]]


def _pods_of(engine: Mapping[str, Any]) -> dict[str, Any]:
    source = {field: value for field, value in engine.items() if field != "copies"}
    if adapters := source.get("adapters"):
        # The endpoint picker alone knows the public names.
        source["adapters"] = [{field: value for field, value in adapter.items() if field != "modelNames"} for adapter in adapters]
    return source


def _member(member: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {field: member[field] for field in _MEMBER_COPIED if field in member}
    filled["nodePoolName"] = place["pool"]
    requests = [_request(request) for request in place.get("requests", ())]
    # A member that claims nothing has no such field at all: an empty list would be refused.
    return filled | ({"deviceRequests": requests} if requests else {})


def _request(request: Mapping[str, Any]) -> dict[str, Any]:
    source = {"resourceName": request["resourceName"]} if request.get("resourceName") else {"deviceClassName": request["deviceClass"]}
    selectors = [{"cel": text} for text in request.get("selectors", ())]
    return {"name": request["name"], **source, "count": request.get("count", 1), **({"selectors": selectors} if selectors else {})}
