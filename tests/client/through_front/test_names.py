"""Invalid names: a request about one object is never one about all objects, or about
another one.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from api_types.messages.entities import Delete, Scale, SetSpec
from api_types.resources.kinds import BY_KIND, SERVED, KindInfo
from client.failures import ExitCode
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target
from fleet_client.through_front.access import FrontAccess
from fleet_client.through_front.objects import FrontObjects, front_objects
from fleet_client.through_front.paths import collection_path, object_path
from tests.client.through_front.answering import DEPLOYMENTS, Said, always, answering
from tests.client.through_front.test_answers import deployment
from tests.front.command_line import CommandLine
from tests.workflows.environment.harness import a_deployment

Line = Callable[[str], CommandLine]
BAD_NAMES = (
    "", " ", ".", "..", "/", "a/b", "../other", "qwen/", "?x", "qwen?", "qwen?dryRun=All", "#1",
    "qwen#", "%2e", "%2F", "a%00", "qwen\n",
    "\x00", "\x1b[0m", "a\r\nX: y", "a b", "a;b", "a\\b", "Qwen", "-qwen", "qwen-", "a..b", "ä",
    "\u202e", "a" * 254,
)  # fmt: skip
BAD_NAMESPACES = (*BAD_NAMES, "a.b", "a" * 64)
MANIFEST = a_deployment("qwen", "ml")
REQUESTS: dict[str, Callable[[FrontObjects, Target], Awaitable[Any]]] = {
    "describe": lambda objects, target: objects.describe(target),
    "find": lambda objects, target: objects.find(target),
    "exists": lambda objects, target: objects.exists(target),
    "waiting": lambda objects, target: objects.waiting(target),
    "set_spec": lambda objects, target: objects.set_spec(
        target, SetSpec(request_id="r", manifest=MANIFEST)
    ),
    "check_spec": lambda objects, target: objects.check_spec(
        target, SetSpec(request_id="r", manifest=MANIFEST)
    ),
    "change_spec": lambda objects, target: objects.change_spec(
        target, SetSpec(request_id="r", manifest=MANIFEST), deployment()
    ),
    "scale": lambda objects, target: objects.scale(
        target, Scale(request_id="r", replicas=1)
    ),
    "delete": lambda objects, target: objects.delete(target, Delete(request_id="r")),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=list(REQUESTS))
async def test_a_name_that_is_none_is_refused_and_nothing_is_sent(
    request_of: Callable[[FrontObjects, Target], Awaitable[Any]],
) -> None:
    kind, cluster = BY_KIND["ModelDeployment"], BY_KIND["InferenceCluster"]
    bad = [
        *(Target(kind, "ml", name) for name in BAD_NAMES),
        *(Target(kind, namespace, "qwen") for namespace in BAD_NAMESPACES),
        *(Target(cluster, "", name) for name in BAD_NAMES),
    ]
    async with (
        answering(always(Said(200, deployment()))) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        for target in bad:
            with pytest.raises(Refused, match="is not the name of"):
                await request_of(objects, target)
    assert front.asked == []


@pytest.mark.parametrize("namespace", BAD_NAMESPACES)
async def test_a_namespace_that_is_none_is_not_listed_and_not_all_are_instead(
    namespace: str,
) -> None:
    async with (
        answering(always(Said(200, {"items": [], "metadata": {}}))) as front,
        front_objects(FrontAccess(front.url)) as objects,
    ):
        with pytest.raises(Refused, match="is not the name of a namespace"):
            await objects.list(BY_KIND["ModelDeployment"], namespace)
    assert front.asked == []


COMMANDS = [
    ["delete", "md", ""], ["delete", "md", " "], ["delete", "md/."], ["delete", "md/.."],
    ["delete", "md/?x"], ["delete", "md", "#1"],
    ["delete", "ic", ""], ["delete", "ic/."], ["delete", "ic", "?x"],
    ["delete", "md", "qwen", ""], ["delete", "md/qwen", "md/%2e"],
    ["delete", "md", "", "--ignore-not-found", "--wait"], ["delete", "md/a\x00"],
    ["delete", "md", "\n"], ["delete", "md", "a" * 70_000],
    ["scale", "md/qwen?", "--replicas", "0"], ["scale", "md", "", "--replicas", "0"],
    ["scale", "md/qwen#", "--replicas", "0"],
    ["rollout", "restart", "md/qwen?"], ["rollout", "pause", "md", ""],
    ["service", "shift", "", "main=1"],
    ["service", "shift", "chat?", "main=1"], ["cordon", "oslo?"], ["cordon", ""],
    ["get", "md", ""], ["get", "md/qwen\x1b"],
    ["describe", "md", ""], ["describe", "md/.."], ["events", "md", ""], ["chat", "", "hello"],
    ["curl", "?x", "/v1/models"],
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    COMMANDS,
    ids=[" ".join(words)[:40].encode("unicode_escape").decode() for words in COMMANDS],
)
async def test_a_command_refuses_a_name_that_is_none(
    line: Line, words: list[str]
) -> None:
    """An object with a valid name beside it is read, and not deleted either."""
    async with answering(always(Said(200, deployment(namespace="default")))) as front:
        shown = await line(front.url).run(*words)
    assert (shown.code, [asked for asked in front.asked if asked[0] != "GET"]) == (
        ExitCode.REFUSED,
        [],
    ), shown
    assert all(
        path == f"{DEPLOYMENTS}/qwen".replace("/ml/", "/default/")
        for _, path in front.asked
    )
    assert shown.err.splitlines()[-1].startswith("next: ")


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_deletion_by_labels_takes_no_such_name_from_a_list(
    line: Line, name: str
) -> None:
    items = [deployment(), deployment(name)]
    for one in items:
        one["metadata"]["labels"] = {"tier": "gold"}
    async with answering(always(Said(200, {"items": items, "metadata": {}}))) as front:
        shown = await line(front.url).run("delete", "md", "-l", "tier=gold", "-n", "ml")
    assert (shown.code, shown.out, [method for method, _ in front.asked]) == (
        ExitCode.FAILED,
        "",
        ["GET"],
    )
    assert "an object with an invalid name" in shown.err


@pytest.mark.parametrize(
    "info", [info for info in SERVED if not info.shown_by], ids=lambda info: info.kind
)
def test_valid_names_are_the_last_part_of_the_path(info: KindInfo) -> None:
    for name in ("qwen", "qwen-2.5-7b", "0", "a" * 63):
        target = Target.of(info, "ml-team", name)
        collection = collection_path(info, target.namespace or None)
        assert object_path(target) == f"{collection}/{name}"
        assert object_path(target, "scale") == f"{collection}/{name}/scale"
        assert collection.endswith(
            f"{'/namespaces/ml-team' if info.namespaced else ''}/{info.plural}"
        )
