"""The webhook: a signed request for a replica count."""

import hashlib
from dataclasses import dataclass

from api_types.messages.entities import WEBHOOK_REQUEST
from api_types.validation.manifests import InvalidManifest, admit_scale
from front.access.signing import Signed
from front.scaling.fields import Fields
from front.serving.requests import Resource
from front.store.projection import Tree

REPLICAS, REASON = "replicas", "reason"
_REASON_BYTES_MAX = 512


@dataclass(frozen=True)
class Wanted:
    """A replica count, and why."""

    replicas: int
    reason: str


def read_wanted(resource: Resource, tree: Tree) -> Wanted:
    """Read the body of a request. Raises `Refused`."""
    fields = Fields(tree, resource.info.group, resource.info.kind, resource.name, (REPLICAS, REASON))
    count = 0
    if tree.get(REPLICAS) is None:
        fields.problem(REPLICAS, "required field is missing; write the number of replicas")
    else:
        try:
            count = admit_scale(resource.namespace, resource.name, tree[REPLICAS])
        except InvalidManifest as refusal:
            for problem in refusal.problems:
                fields.problem(REPLICAS, problem.problem)
    reason = fields.text(REASON, bytes_max=_REASON_BYTES_MAX)
    fields.check()
    return Wanted(count, reason)


def request_id_of(signed: Signed) -> str:
    """Give the id by which the deployment's workflow knows a repeat, also one that another front gets."""
    return WEBHOOK_REQUEST + hashlib.sha256(f"{signed.user.name}\0{signed.request_id}".encode()).hexdigest()[:40]
