"""The cluster that is assumed where deployments or caches are rendered and no fleet is given.

It has whatever they ask for: nothing is decided, so no scheduler is asked. What only a fleet could say is taken from the text of
the selectors: the driver that they name is taken for the device class.
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

# With what only some clusters serve.
FACTS = {"storage_class_name": "assumed-rwx", "apis": sorted(apiversions.RENDERED)}
_NAME = "assumed"
_POOL = "assumed"
_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']|device\.(?:attributes|capacity)\[["']([^"']+)["']\]""")
_ANY_DRIVER = "gpu.nvidia.com"
_CLAIM_PARTS = "assumed"


def name_for(documents: Documents, given: Sequence[str]) -> str:
    """Name the cluster that is assumed for deployments and caches: the only one with given facts, if there is one.

    Empty where an object describes a fleet, or facts are given of several clusters: then the deployments are placed.
    """
    wanted = documents.placed or documents.caches
    described = documents.clusters or documents.classes or documents.replicas
    return next(iter(given), _NAME) if wanted and not described and len(given) <= 1 else ""


def note(name: str, documents: Documents) -> str:
    """Say what is assumed."""
    cluster = f"no InferenceCluster and no InferenceClass is given: cluster {name!r} is assumed, with"
    if not documents.placed:
        return f"{cluster} a storage class for caches"
    return (
        f"{cluster} one pool that has all devices that are asked for; device classes have the names of the drivers in the selectors, "
        "and caches that are not given are staged"
    )


def claims(documents: Documents) -> dict[str, str]:
    """Give the volume claims of caches that deployments name and that are not among the objects."""
    keys = [(manifest["metadata"]["namespace"], name) for manifest in documents.placed for name in referenced_caches(_template(manifest))]
    return {
        f"{namespace}/{name}": names.cache_claim_name(namespace, name, _CLAIM_PARTS)
        for namespace, name in keys
        if (namespace, name) not in documents.caches
    }


def replicas(documents: Documents, cluster: str, uid: str, generation: int) -> Iterator[ReplicaInput]:
    """Give all replicas of the deployments on the assumed cluster."""
    for manifest in documents.placed:
        namespace, deployment = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        template = _template(manifest)
        spec = replica_spec(template, cluster, [_place(engine) for engine in template["engines"]])
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
    """Give an engine as a placement has it."""
    members = [
        {"pool": _POOL, "requests": [_claimed(request) for request in (member.get("nodeSelector") or {}).get("devices", ())]}
        for member in engine["members"]
    ]
    return {"engine": engine["name"], "members": members}


def _claimed(request: Mapping[str, Any]) -> dict[str, Any]:
    selectors = [selector["cel"] for selector in request.get("selectors", ())]
    found = [match[1] or match[2] for text in selectors for match in _DRIVER.finditer(text)]
    return {
        "name": request["name"],
        "count": request.get("count", 1),
        "selectors": selectors,
        "deviceClass": found[0] if found else _ANY_DRIVER,
    }
