"""The body of a signed request for a replica count."""

import hashlib
from dataclasses import dataclass

from api_types.messages.entities import WEBHOOK_REQUEST
from api_types.validation.manifests import InvalidManifest, admit_scale
from front.access.signing import SignedRequest
from front.scaling.fields import ObjectFields
from front.serving.requests import RequestedResource
from front.store.projection import Tree

REPLICAS, REASON = "replicas", "reason"
_REASON_BYTES_MAX = 512


@dataclass(frozen=True)
class WantedReplicas:
    replicas: int
    reason: str


def read_wanted(resource: RequestedResource, tree: Tree) -> WantedReplicas:
    """Parse the body of a request. Raises `RejectedRequest`."""
    fields = ObjectFields(
        tree, resource.info.group, resource.info.kind, resource.name, (REPLICAS, REASON)
    )
    count = 0
    if tree.get(REPLICAS) is None:
        fields.problem(
            REPLICAS, "required field is missing; set it to the number of replicas"
        )
    else:
        try:
            count = admit_scale(resource.namespace, resource.name, tree[REPLICAS])
        except InvalidManifest as refusal:
            for problem in refusal.problems:
                fields.problem(REPLICAS, problem.problem)
    reason = fields.text(REASON, bytes_max=_REASON_BYTES_MAX)
    fields.check()
    return WantedReplicas(count, reason)


def request_id_of(signed: SignedRequest) -> str:
    """Return the request id for the workflow, which recognizes repeats by it.

    Every front computes the same id.
    """
    identity = f"{signed.user.name}\0{signed.request_id}".encode()
    return WEBHOOK_REQUEST + hashlib.sha256(identity).hexdigest()[:40]
