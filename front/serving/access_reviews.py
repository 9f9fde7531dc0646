"""What users ask about themselves: `kubectl auth can-i`, `auth can-i --list` and `auth whoami`."""

from api_types.labels import GROUP
from api_types.resources.kinds import SERVED
from front.access.access import Access
from front.access.access_file import ANY, Attempt, Right, User
from front.access.reviews import Unanswered
from front.serving import bodies, errors
from front.serving.documents.discovery import ACCESS_GROUP, AUTHENTICATION_GROUP, REVIEW_VERSION, REVIEWS
from front.serving.formats import protobuf
from front.serving.requests import governed
from front.store.projection import Tree

_KINDS = {f"/apis/{group}/{REVIEW_VERSION}/{plural}": (group, kind) for group, kinds in REVIEWS.items() for plural, kind in kinds.items()}
PATHS = frozenset(_KINDS)
PATH = f"/apis/{ACCESS_GROUP}/{REVIEW_VERSION}/selfsubjectaccessreviews"
RULES_PATH = f"/apis/{ACCESS_GROUP}/{REVIEW_VERSION}/selfsubjectrulesreviews"
USER_PATH = f"/apis/{AUTHENTICATION_GROUP}/{REVIEW_VERSION}/selfsubjectreviews"
_ASKING = "create"
"""The verb of reviews, which every user has."""
_GROUPS = {info.group for info in SERVED}
_CLUSTER_SCOPED = {info.plural for info in SERVED if not info.namespaced}
_INCOMPLETE = "what an API server allows besides is not listed"


def parsed(path: str, body: bytes) -> Tree:
    """Read a review that is sent to one of `PATHS`. Raises `Refused`."""
    _, kind = _KINDS[path]
    return protobuf.review(body, kind) if body.startswith(protobuf.MAGIC) else bodies.parse_object(body)


async def answered(path: str, review: Tree, user: User, access: Access) -> Tree:
    """Answer a review that was sent to one of `PATHS`. Raises `Refused`."""
    if path == USER_PATH:
        return _answer(path, {"userInfo": _shown(user)})
    if path == RULES_PATH:
        return _rules(review, user, access)
    return await reviewed(review, user, access)


async def reviewed(review: Tree, user: User, access: Access) -> Tree:
    """Answer whether a user may do something. Raises `Refused`."""
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
    group = wanted.get("group", "")
    try:
        # Rules are about kinds of ours: those of another group may have the same name.
        allowed = _asks(group, attempt) or (group in (*_GROUPS, ANY) and await access.allows(user, attempt))
    except Unanswered as silence:
        raise errors.undecided() from silence
    status = {"allowed": allowed} | ({} if allowed else {"reason": "no rule allows it"})
    return _answer(PATH, status, {"resourceAttributes": wanted})


def _asks(group: str, attempt: Attempt) -> bool:
    return attempt.verb == _ASKING and attempt.resource in REVIEWS.get(group, {})


def _rules(review: Tree, user: User, access: Access) -> Tree:
    """List what a user may do in a namespace, and with the kinds that have none, as the rules of roles that Kubernetes has."""
    spec = review.get("spec")
    namespace = spec.get("namespace") if isinstance(spec, dict) else None
    if not isinstance(namespace, str) or not namespace:
        raise errors.bad_request("spec.namespace: name the namespace")
    rules: list[Tree] = [_rule((_ASKING,), group, list(kinds)) for group, kinds in REVIEWS.items()]
    found = [(right.verbs, _resources(right)) for right in access.rights(user, namespace)]
    rules += [_rule(verbs, GROUP, resources) for verbs, resources in found if resources]
    status: Tree = {"resourceRules": rules, "nonResourceRules": [], "incomplete": access.is_reviewed(user)}
    if status["incomplete"]:
        status["evaluationError"] = _INCOMPLETE
    return _answer(RULES_PATH, status, {"namespace": namespace})


def _rule(verbs: tuple[str, ...], group: str, resources: list[str]) -> Tree:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": resources}


def _resources(right: Right) -> list[str]:
    """Name what a right is about. What has no namespace is not in the `*` of a rule for a namespace, so `*` stands for all alone."""
    if ANY in right.resources and right.namespaced and right.cluster_scoped:
        return [ANY]
    return [name for info in SERVED for name in governed(info) if right.has(name, namespaced=info.namespaced)]


def _shown(user: User) -> Tree:
    found = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": user.extra_by_key()}
    return {field: value for field, value in found.items() if value}


def _answer(path: str, status: Tree, spec: Tree | None = None) -> Tree:
    group, kind = _KINDS[path]
    head: Tree = {"apiVersion": f"{group}/{REVIEW_VERSION}", "kind": kind, "metadata": {}}
    return {**head, **({"spec": spec} if spec is not None else {}), "status": status}
