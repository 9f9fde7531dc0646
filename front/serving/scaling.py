"""The `scale` subresource, which kubectl, HPA and KEDA read and write."""

from typing import Any

from api_types.validation.manifests import InvalidManifest, admit_scale
from client.refs.tree import at_path
from front.serving import errors
from front.serving.requests import Resource
from front.store.projection import Tree

API_VERSION, KIND = "autoscaling/v1", "Scale"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(resource: Resource, tree: Tree) -> Tree:
    """Write the Scale of an object."""
    paths = resource.info.scale
    if paths is None:
        raise TypeError(resource.info.kind)
    metadata = {field: tree["metadata"][field] for field in _METADATA if field in tree["metadata"]}
    spec = {"replicas": at_path(tree, paths.spec) or 0}
    status: dict[str, Any] = {"replicas": at_path(tree, paths.status) or 0}
    if selector := at_path(tree, paths.selector):
        status["selector"] = selector
    return {"kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}


def wanted_replicas(resource: Resource, before: Tree, wanted: Tree) -> int:
    """Give the count that a Scale says for an object as it is. Raises `Refused` for one of another state or another object."""
    spec, metadata = wanted.get("spec"), wanted.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise errors.bad_request("a Scale has metadata, and spec.replicas")
    for field in ("name", "namespace", "uid", "resourceVersion"):
        given, present = metadata.get(field), before["metadata"].get(field)
        if given and given != present:
            why = errors.MODIFIED if field == "resourceVersion" else f"its {field} is {present}"
            raise errors.conflict(resource.info.group, resource.info.plural, resource.name, why)
    try:
        return admit_scale(resource.namespace, resource.name, spec.get("replicas", 0))
    except InvalidManifest as refusal:
        raise errors.invalid("autoscaling", KIND, resource.name, refusal) from refusal
