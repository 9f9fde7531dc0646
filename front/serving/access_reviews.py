"""Reviews of the caller's own rights.

They serve `kubectl auth can-i`, `auth can-i --list` and `auth whoami`.
"""

from api_types.labels import GROUP
from api_types.resources.kinds import SERVED
from front.access.access import AccessControl
from front.access.access_file import ANY, Attempt, PolicyRule, User
from front.access.reviews import Unanswered
from front.serving import bodies, errors
from front.serving.documents.discovery import (
    ACCESS_GROUP,
    AUTHENTICATION_GROUP,
    REVIEW_VERSION,
    REVIEWS,
)
from front.serving.formats import protobuf
from front.serving.requests import governed
from front.store.projection import Tree

_KINDS: dict[str, tuple[str, str]] = {}
for _group, _kinds in REVIEWS.items():
    for _plural, _kind in _kinds.items():
        _KINDS[f"/apis/{_group}/{REVIEW_VERSION}/{_plural}"] = (_group, _kind)
PATHS = frozenset(_KINDS)
PATH = f"/apis/{ACCESS_GROUP}/{REVIEW_VERSION}/selfsubjectaccessreviews"
RULES_PATH = f"/apis/{ACCESS_GROUP}/{REVIEW_VERSION}/selfsubjectrulesreviews"
USER_PATH = f"/apis/{AUTHENTICATION_GROUP}/{REVIEW_VERSION}/selfsubjectreviews"
_ASKING = "create"
"""The verb of reviews, which every user may use."""
_GROUPS = {info.group for info in SERVED}
_CLUSTER_SCOPED = {info.plural for info in SERVED if not info.namespaced}
_INCOMPLETE = "rights that only the API server grants are not listed"


def parsed(path: str, body: bytes) -> Tree:
    """Parse a review that was sent to one of `PATHS`. Raises `RejectedRequest`."""
    _, kind = _KINDS[path]
    if body.startswith(protobuf.MAGIC):
        return protobuf.review(body, kind)
    return bodies.parse_object(body)


async def answered(path: str, review: Tree, user: User, access: AccessControl) -> Tree:
    """Answer a review that was sent to one of `PATHS`. Raises `RejectedRequest`."""
    if path == USER_PATH:
        return _answer(path, {"userInfo": _shown(user)})
    if path == RULES_PATH:
        return _rules(review, user, access)
    return await reviewed(review, user, access)


async def reviewed(review: Tree, user: User, access: AccessControl) -> Tree:
    """Answer whether a user may do something. Raises `RejectedRequest`."""
    spec = review.get("spec")
    wanted = spec.get("resourceAttributes") if isinstance(spec, dict) else None
    if not isinstance(wanted, dict) or not all(
        isinstance(value, str) for value in wanted.values()
    ):
        raise errors.bad_request(
            "spec.resourceAttributes: set verb and resource, as strings"
        )
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
        # Rules cover kinds of this API group only. Other groups may have kinds of the
        # same name.
        allowed = _asks(group, attempt) or (
            group in (*_GROUPS, ANY) and await access.allows(user, attempt)
        )
    except Unanswered as silence:
        raise errors.undecided() from silence
    status: Tree = {"allowed": allowed}
    if not allowed:
        status["reason"] = "no rule allows it"
    return _answer(PATH, status, {"resourceAttributes": wanted})


def _asks(group: str, attempt: Attempt) -> bool:
    return attempt.verb == _ASKING and attempt.resource in REVIEWS.get(group, {})


def _rules(review: Tree, user: User, access: AccessControl) -> Tree:
    """List a user's rights in a namespace and on cluster-scoped kinds.

    The form is that of Kubernetes' role rules.
    """
    spec = review.get("spec")
    namespace = spec.get("namespace") if isinstance(spec, dict) else None
    if not isinstance(namespace, str) or not namespace:
        raise errors.bad_request("spec.namespace: required")
    rules: list[Tree] = [
        _rule((_ASKING,), group, list(kinds)) for group, kinds in REVIEWS.items()
    ]
    by_right = [(each, _resources(each)) for each in access.rights(user, namespace)]
    rules += [_rule(right.verbs, GROUP, found) for right, found in by_right if found]
    status: Tree = {
        "resourceRules": rules,
        "nonResourceRules": [],
        "incomplete": access.is_reviewed(user),
    }
    if status["incomplete"]:
        status["evaluationError"] = _INCOMPLETE
    return _answer(RULES_PATH, status, {"namespace": namespace})


def _rule(verbs: tuple[str, ...], group: str, resources: list[str]) -> Tree:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": resources}


def _resources(right: PolicyRule) -> list[str]:
    """Return the resources that a right covers.

    A rule for a namespace does not cover cluster-scoped kinds, so `*` is used only if
    the right covers both.
    """
    if ANY in right.resources and right.namespaced and right.cluster_scoped:
        return [ANY]
    found: list[str] = []
    for info in SERVED:
        names = governed(info)
        found += [each for each in names if right.has(each, namespaced=info.namespaced)]
    return found


def _shown(user: User) -> Tree:
    found = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": user.extra_by_key(),
    }
    return {field: value for field, value in found.items() if value}


def _answer(path: str, status: Tree, spec: Tree | None = None) -> Tree:
    group, kind = _KINDS[path]
    answer: Tree = {
        "apiVersion": f"{group}/{REVIEW_VERSION}",
        "kind": kind,
        "metadata": {},
        "status": status,
    }
    if spec is not None:
        answer["spec"] = spec
    return answer
