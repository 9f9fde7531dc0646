"""SelfSubjectAccessReview: what `kubectl auth can-i` asks."""

from api_types.resources.kinds import SERVED
from front.access.access import Access
from front.access.access_file import ANY, Attempt, User
from front.access.reviews import Unanswered
from front.serving import errors
from front.serving.documents.discovery import ACCESS_GROUP, ACCESS_VERSION
from front.store.projection import Tree

PATH = f"/apis/{ACCESS_GROUP}/{ACCESS_VERSION}/selfsubjectaccessreviews"
_GROUPS = {info.group for info in SERVED}
_CLUSTER_SCOPED = {info.plural for info in SERVED if not info.namespaced}


async def reviewed(review: Tree, user: User, access: Access) -> Tree:
    """Answer a review. Raises `Refused`."""
    spec = review.get("spec")
    wanted = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(wanted, dict) or not all(isinstance(value, str) for value in wanted.values()):
        raise errors.bad_request("spec.resourceAttributes: name the verb and the resource")
    resource, subresource = wanted.get("resource", ""), wanted.get("subresource", "")
    namespaced = resource not in _CLUSTER_SCOPED
    attempt = Attempt(
        verb=wanted.get("verb", ""),
        resource=f"{resource}/{subresource}" if subresource else resource,
        namespace=(wanted.get("namespace", "") or ANY) if namespaced else "",
        name=wanted.get("name", ""),
        namespaced=namespaced,
    )
    try:
        # Rules are about kinds of ours: those of another group may have the same name.
        allowed = wanted.get("group", "") in (*_GROUPS, ANY) and await access.allows(user, attempt)
    except Unanswered as silence:
        raise errors.undecided() from silence
    status = {"allowed": allowed} | ({} if allowed else {"reason": "no rule allows it"})
    spec = {"resourceAttributes": wanted}
    kind = {"apiVersion": f"{ACCESS_GROUP}/{ACCESS_VERSION}", "kind": "SelfSubjectAccessReview"}
    return {**kind, "metadata": {}, "spec": spec, "status": status}
