"""Reviews about oneself follow the same rules as requests."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types.resources.kinds import SERVED
from front.access.access import AccessControl
from front.access.access_file import AccessRules, User
from front.access.reviews import Reviews
from front.serving import access_reviews
from front.serving.access_reviews import PATH, PATHS, RULES_PATH, USER_PATH, answered
from front.serving.documents.discovery import REVIEWS
from front.serving.requests import governed, subresources
from tests.front.fleet_of_tenants import ACCESS, Fleet, a_fleet

Json = dict[str, Any]
GROUP = "modelplane.ai"
VERBS = (
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
)
RESOURCES = [(name, info.namespaced) for info in SERVED for name in governed(info)]
# As kubectl sends them, with empty fields.
_EMPTY = b'\n\x10\n\x00\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00'
WHOAMI = (
    b"k8s\x00\n-\n\x18authentication.k8s.io/v1\x12\x11SelfSubjectReview\x12\x1a"
    + _EMPTY
    + b'\x12\x06\n\x04\n\x00\x12\x00\x1a\x00"\x00'
)
LIST_IN_A = (
    b"k8s\x00\n1\n\x17authorization.k8s.io/v1\x12\x16SelfSubjectRulesReview\x12\x1d"
    + _EMPTY
    + b'\x12\x03\n\x01a\x1a\x04\x18\x00"\x00\x1a\x00"\x00'
)
MORE_RULES = f"""
- {{name: bo, groups: [team-b], tokenSha256: [{hashlib.sha256(b"token-of-bo").hexdigest()}]}}
rules:
- groups: [team-b]
  namespaces: [b]
  resources: [modeldeployments, "*/scale", inferenceclusters, servingstacks]
  verbs: [get, patch]
- {{groups: [team-b], clusterScoped: true, resources: ["*"], verbs: [get]}}
- groups: [team-b]
  namespaces: ["*"]
  clusterScoped: true
  resources: [inferenceclasses, modelservices]
  verbs: [list]
- users: ["*"]
  namespaces: [shared]
  resources: [modelcaches, modelreplicas/status]
  verbs: ["*"]"""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def access(tmp_path: Path) -> AccessControl:
    """Rules of three users.

    Some cover both scopes, some name resources that their scope lacks.
    """
    file = tmp_path / "rules.yaml"
    file.write_text(ACCESS.replace("\nrules:", MORE_RULES))
    return AccessControl(AccessRules(file))


async def told(path: str, user: User, access: AccessControl, **spec: Any) -> Json:
    return await answered(path, {"spec": spec}, user, access)


def lists(rules: list[Json], group: str, resource: str, verb: str) -> bool:
    """Return whether rules allow a request, as Kubernetes evaluates them."""

    def has(held: list[str], *wanted: str) -> bool:
        return "*" in held or not set(held).isdisjoint(wanted)

    _, _, subresource = resource.partition("/")
    names = (resource, f"*/{subresource}") if subresource else (resource,)
    return any(
        has(rule["apiGroups"], group)
        and has(rule["resources"], *names)
        and has(rule["verbs"], verb)
        for rule in rules
    )


@pytest.mark.parametrize("namespace", ["a", "b", "shared", "none"])
@pytest.mark.parametrize("name", ["ann", "bo", "root", "eve"])
async def test_the_list_of_rules_matches_single_reviews(
    access: AccessControl, name: str, namespace: str
) -> None:
    user = access.user_of(f"token-of-{name}", {}, None) or User(  # type: ignore[arg-type]
        "eve", ("system:authenticated",)
    )
    rules = (await told(RULES_PATH, user, access, namespace=namespace))["status"][
        "resourceRules"
    ]
    asked = [
        (GROUP, resource, verb, namespaced)
        for resource, namespaced in RESOURCES
        for verb in VERBS
    ]
    asked += [
        (group, plural, verb, False)
        for group, kinds in REVIEWS.items()
        for plural in kinds
        for verb in VERBS
    ]
    found = dict[tuple[str, str, str], bool]()
    for group, resource, verb, namespaced in asked:
        plural, _, subresource = resource.partition("/")
        wanted = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
        }
        wanted |= {"namespace": namespace} if namespaced else {}
        review = await told(PATH, user, access, resourceAttributes=wanted)
        found[group, resource, verb] = review["status"]["allowed"]
        assert lists(rules, group, resource, verb) is found[group, resource, verb], (
            group,
            resource,
            verb,
        )
    assert set(found.values()) == {True, False}, (
        "every user may ask, and none may do everything with a review"
    )


async def test_listed_rules_contain_only_resources_of_their_scope(
    access: AccessControl,
) -> None:
    bo = User("bo", ("team-b",))
    named = {
        resource
        for rule in (await told(RULES_PATH, bo, access, namespace="b"))["status"][
            "resourceRules"
        ]
        if rule["apiGroups"] == [GROUP] and "patch" in rule["verbs"]
        for resource in rule["resources"]
    }
    assert named == {"modeldeployments", "modeldeployments/scale"}


async def test_the_rights_of_one_tenant_reveal_nothing_of_another(
    tmp_path: Path,
) -> None:
    async with a_fleet(tmp_path) as there, a_fleet(tmp_path, with_b=False) as gone:
        for namespace in ("a", "b", "none"):
            body = json.dumps({"spec": {"namespace": namespace}}).encode()
            answers = [
                await each.ask("POST", RULES_PATH, body=body) for each in (there, gone)
            ]
            assert answers[0] == answers[1]
            assert answers[0][0] == 201
            tree = json.loads(answers[0][1])
            of_kinds = [
                rule
                for rule in tree["status"]["resourceRules"]
                if rule["apiGroups"] == [GROUP]
            ]
            # The answer for other namespaces is the same whether or not objects exist
            # there.
            assert bool(of_kinds) is (namespace == "a")
            assert not any(
                text in json.dumps(tree["status"])
                for text in ("root", "other", "team", "mine")
            )
        assert there.plane.touched == []


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"SelfSubjectReview"}', WHOAMI])
async def test_users_can_read_their_own_name_and_groups(
    fleet: Fleet, body: bytes
) -> None:
    status, answer = await fleet.ask("POST", USER_PATH, body=body)
    tree = json.loads(answer)
    assert (status, tree["apiVersion"], tree["kind"]) == (
        201,
        "authentication.k8s.io/v1",
        "SelfSubjectReview",
    )
    assert tree["status"] == {
        "userInfo": {"username": "ann", "groups": ["team-a", "system:authenticated"]}
    }


@pytest.mark.parametrize("body", [b'{"spec":{"namespace":"a"}}', LIST_IN_A])
async def test_a_list_of_rules_can_be_requested_in_json_and_protobuf(
    fleet: Fleet, body: bytes
) -> None:
    status, answer = await fleet.ask("POST", RULES_PATH, body=body)
    tree = json.loads(answer)
    assert (status, tree["kind"], tree["spec"]) == (
        201,
        "SelfSubjectRulesReview",
        {"namespace": "a"},
    )
    assert lists(
        tree["status"]["resourceRules"], GROUP, "modeldeployments/metrics", "update"
    )
    assert not lists(tree["status"]["resourceRules"], GROUP, "inferenceclusters", "get")
    assert (tree["status"]["nonResourceRules"], tree["status"]["incomplete"]) == (
        [],
        False,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"spec":{}}',
        b'{"spec":{"namespace":""}}',
        b'{"spec":{"namespace":1}}',
        b"[]",
        b"k8s\0\x12\xff",
        LIST_IN_A[:-20],
    ],
)
async def test_a_list_of_rules_is_for_one_namespace(fleet: Fleet, body: bytes) -> None:
    status, answer = await fleet.ask("POST", RULES_PATH, body=body)
    assert (status, json.loads(answer)["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("path", sorted(PATHS))
async def test_reviews_need_a_known_user_and_a_post(fleet: Fleet, path: str) -> None:
    assert (await fleet.ask("POST", path, "", b'{"spec":{"namespace":"a"}}'))[0] == 401
    for method in ("GET", "PUT", "DELETE"):
        assert (await fleet.ask(method, path, body=b"{}"))[0] == 404


async def test_discovery_lists_the_reviews(fleet: Fleet) -> None:
    found = set[str]()
    for group in REVIEWS:
        _, answer = await fleet.ask("GET", f"/apis/{group}/v1")
        found |= {
            f"/apis/{group}/v1/{each['name']}"
            for each in json.loads(answer)["resources"]
        }
    assert found == PATHS == {PATH, RULES_PATH, USER_PATH}
    _, answer = await fleet.ask("GET", "/apis")
    assert {each["name"] for each in json.loads(answer)["groups"]} == {GROUP, *REVIEWS}
    _, answer = await fleet.ask(
        "GET",
        "/apis",
        Accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    )
    assert {each["metadata"]["name"] for each in json.loads(answer)["items"]} == {
        GROUP,
        *REVIEWS,
    }


async def test_the_rules_of_an_api_servers_user_are_marked_incomplete(
    access: AccessControl,
) -> None:
    user = User(
        "ann",
        ("team-a",),
        (("scopes", "read"), ("scopes", "write")),
        uid="7",
        is_of_api_server=True,
    )
    reviewing = AccessControl(access._rules, reviews=Reviews(lambda _: True))
    status = (await told(RULES_PATH, user, reviewing, namespace="a"))["status"]
    assert (status["incomplete"], status["evaluationError"]) == (
        True,
        access_reviews._INCOMPLETE,
    )
    assert lists(status["resourceRules"], GROUP, "modeldeployments", "get")
    shown = (await told(USER_PATH, user, reviewing))["status"]["userInfo"]
    assert shown == {
        "username": "ann",
        "uid": "7",
        "groups": ["team-a"],
        "extra": {"scopes": ["read", "write"]},
    }
    # It receives no reviews about other users.
    assert not (
        await told(RULES_PATH, User("ann", ("team-a",)), reviewing, namespace="a")
    )["status"]["incomplete"]
    reviewing.close()


async def test_without_an_access_file_reviews_allow_everything() -> None:
    rules = (await told(RULES_PATH, User("x"), AccessControl(), namespace="a"))[
        "status"
    ]["resourceRules"]
    assert rules[-1] == {"verbs": ["*"], "apiGroups": [GROUP], "resources": ["*"]}


def test_rules_can_name_every_resource_of_a_kind() -> None:
    for info in SERVED:
        assert {
            f"{info.plural}/{name}" if name else info.plural
            for name in subresources(info)
        } <= set(governed(info))
