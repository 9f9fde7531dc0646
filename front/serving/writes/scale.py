"""The replica count: the `scale` subresource, and the count that a manifest sets.

kubectl, HPA and KEDA use the subresource. Workflows keep the count of an autoscaler when
a manifest is written, so a count that a client chose is sent as a message of its own.
"""

from collections.abc import Callable
from typing import Any

from api_types.messages.entities import Scale
from api_types.messages.signals import ModelDeploymentSignals
from api_types.validation.manifests import InvalidManifest, admit_scale
from fleet_client.refs.tree import at_path
from fleet_client.requests import new_request_id
from front.access.recorded import recorded
from front.applying.annotation import WITH_WRITE
from front.audit.event import AuditEvent
from front.serving import bodies, errors
from front.serving.requests import RequestedResource
from front.serving.writes.admission import named_version
from front.serving.writes.object_workflows import ObjectWorkflows
from front.serving.writes.turns import WriteTurns
from front.store.projection import Tree

API_VERSION, KIND = "autoscaling/v1", "Scale"
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleWrites:
    """Sets replica counts."""

    def __init__(self, workflows: ObjectWorkflows, turns: WriteTurns) -> None:
        self._workflows, self._turns = workflows, turns

    async def scale(
        self,
        resource: RequestedResource,
        wanted: Callable[[Tree], Tree],
        event: AuditEvent,
        *,
        request_id: str = "",
        reason: str = "",
    ) -> Tree:
        """Set the replica count; `wanted` computes the new Scale from the present one.

        A repeated `request_id` changes nothing. Leave it empty for requests that are
        never repeated. Returns the Scale. Raises `RejectedRequest`.
        """
        async with self._turns.of(resource.key):
            before = await self._workflows.present(resource)
            document = await bodies.apart(wanted, scale_of(resource, before))
            count = wanted_replicas(resource, before, document)
            await self._workflows.check_manifest(
                resource, before, named_version(resource, document, before)
            )
            if event.dry_run:
                return {**scale_of(resource, before), "spec": {"replicas": count}}
            message = Scale(
                request_id=request_id or new_request_id(),
                by=recorded(event.user),
                replicas=count,
                reason=reason,
            )
            after = await self._sent(resource, before, message, event)
            if after is None:
                raise errors.not_found(*resource.identity)
            return scale_of(resource, after)

    async def with_count(
        self, resource: RequestedResource, tree: Tree, count: Any, event: AuditEvent
    ) -> Tree:
        """Scale an object to the count that the client chose, if it differs.

        Call it after writing the object. The workflow ignores a count that was applied
        before, and keeps the count of an autoscaler. Raises `RejectedRequest`.
        """
        if count is None or tree["spec"].get("replicas") == count:
            return tree
        message = Scale(
            request_id=f"{WITH_WRITE}{new_request_id()}",
            by=recorded(event.user),
            replicas=count,
        )
        return await self._sent(resource, tree, message, event) or tree

    async def _sent(
        self,
        resource: RequestedResource,
        before: Tree,
        message: Scale,
        event: AuditEvent,
    ) -> Tree | None:
        change = event.sends(resource.name, message.request_id, before)
        return await self._workflows.signalled(
            resource, ModelDeploymentSignals.SCALE, message, change
        )


def has_count(before: Tree, manifest: Tree) -> bool:
    """Return whether a write keeps the replica count."""
    count = manifest["spec"].get("replicas")
    return count is not None and count == (before.get("spec") or {}).get("replicas")


def chosen_count(before: Tree, manifest: Tree) -> Any:
    """Return the replica count that a write sets.

    Returns None if the write keeps the count, or the kind has none.
    """
    return None if has_count(before, manifest) else manifest["spec"].get("replicas")


def scale_of(resource: RequestedResource, tree: Tree) -> Tree:
    """Return the Scale of an object."""
    paths = resource.info.scale
    if paths is None:
        raise TypeError(resource.info.kind)
    metadata = {
        field: tree["metadata"][field]
        for field in _METADATA
        if field in tree["metadata"]
    }
    spec = {"replicas": at_path(tree, paths.spec) or 0}
    status: dict[str, Any] = {"replicas": at_path(tree, paths.status) or 0}
    if selector := at_path(tree, paths.selector):
        status["selector"] = selector
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def wanted_replicas(resource: RequestedResource, before: Tree, wanted: Tree) -> int:
    """Return the replica count in a Scale.

    The caller checks the version of the Scale. Raises `RejectedRequest` for another
    object's Scale.
    """
    spec, metadata = wanted.get("spec"), wanted.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise errors.bad_request("a Scale must have metadata and spec")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if wanted.get(field, expected) != expected:
            raise errors.bad_request(f"{field}: a Scale has {expected!r} here")
    if unknown := sorted(map(str, spec.keys() - {"replicas"})):
        raise errors.bad_request(f'unknown field "spec.{unknown[0][:64]}" of a Scale')
    if metadata.get("name") and metadata["name"] != resource.name:
        raise errors.bad_request(
            "the name of the object does not match the name on the URL"
        )
    for field in ("name", "namespace", "uid"):
        given, present = metadata.get(field), before["metadata"].get(field)
        if given and given != present:
            raise errors.conflict(
                *resource.identity,
                f"the Scale has another {field} than the object, {present}",
            )
    try:
        return admit_scale(resource.namespace, resource.name, spec.get("replicas", 0))
    except InvalidManifest as refusal:
        raise errors.invalid("autoscaling", KIND, resource.name, refusal) from refusal
