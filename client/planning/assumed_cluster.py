"""The cluster that is assumed for rendering without a fleet.

It has all devices that the deployments and caches request, so the scheduler is not
needed. Its device class is named after the driver in the selectors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from activities.render.inputs.facts import ReplicaInput
from api_types import names
from api_types.pins import apiversions
from api_types.resources.parts.referenced_caches import referenced_caches
from api_types.resources.replica_spec import replica_spec
from scheduler import Documents

# The assumed cluster serves every API, including optional ones.
FACTS = {"storage_class_name": "assumed-rwx", "apis": sorted(apiversions.RENDERED)}
_NAME = "assumed"
_POOL = "assumed"
_DRIVER = re.compile(
    r"""device\.driver\s*==\s*["']([^"']+)["']"""
    r"""|device\.(?:attributes|capacity)\[["']([^"']+)["']\]"""
)
_ANY_DRIVER = "gpu.nvidia.com"
_CLAIM_PARTS = "assumed"


def name_for(documents: Documents, given: Sequence[str]) -> str:
    """Return the name of the assumed cluster.

    It is the only cluster with given facts, if there is one. Return an empty string if
    an object describes a fleet, or facts are given for several clusters. Deployments
    are placed then.
    """
    wanted = documents.placed or documents.caches
    described = documents.clusters or documents.classes or documents.replicas
    if not wanted or described or len(given) > 1:
        return ""
    return next(iter(given), _NAME)


def note(name: str, documents: Documents) -> str:
    """Return a note about the assumptions."""
    cluster = (
        f"no InferenceCluster and no InferenceClass is given: cluster {name!r} is "
        "assumed, with"
    )
    if not documents.placed:
        return f"{cluster} a storage class for caches"
    return (
        f"{cluster} one pool that has all requested devices; device classes have the "
        "names of the drivers in the selectors, and caches that are not given are "
        "staged"
    )


def claims(documents: Documents) -> dict[str, str]:
    """Return the volume claims of caches that are named but not given.

    Deployments name these caches, and no object in the files describes them.
    """
    keys = [
        (manifest["metadata"]["namespace"], name)
        for manifest in documents.placed
        for name in referenced_caches(_template(manifest))
    ]
    return {
        f"{namespace}/{name}": names.cache_claim_name(namespace, name, _CLAIM_PARTS)
        for namespace, name in keys
        if (namespace, name) not in documents.caches
    }


def replicas(
    documents: Documents, cluster: str, uid: str, generation: int
) -> Iterator[ReplicaInput]:
    """Yield all replicas of the deployments on the assumed cluster."""
    for manifest in documents.placed:
        namespace, deployment = (
            manifest["metadata"]["namespace"],
            manifest["metadata"]["name"],
        )
        template = _template(manifest)
        spec = replica_spec(
            template, cluster, [_place(engine) for engine in template["engines"]]
        )
        for index in range(manifest["spec"]["replicas"]):
            yield ReplicaInput(
                namespace=namespace,
                name=names.replica_name(namespace, deployment, cluster, index),
                uid=uid,
                generation=generation,
                deployment=deployment,
                cluster=cluster,
                index=index,
                spec=spec,
            )


def _template(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def _place(engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return an engine in the form of a placement."""
    members = []
    for member in engine["members"]:
        devices = (member.get("nodeSelector") or {}).get("devices", ())
        claimed = [_claimed(request) for request in devices]
        members.append({"pool": _POOL, "requests": claimed})
    return {"engine": engine["name"], "members": members}


def _claimed(request: Mapping[str, Any]) -> dict[str, Any]:
    selectors = [selector["cel"] for selector in request.get("selectors", ())]
    matches = (_DRIVER.search(text) for text in selectors)
    drivers = (match[1] or match[2] for match in matches if match)
    return {
        "name": request["name"],
        "count": request.get("count", 1),
        "selectors": selectors,
        "deviceClass": next(drivers, _ANY_DRIVER),
    }
