"""Wrong answers of a server: no command shows them, or ends with a traceback."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from api_types.resources.kinds import SERVED
from client.failures import ExitCode
from fleet_client.through_front import objects
from fleet_client.through_front.answers import parsed
from tests.client.through_front.answering import (
    DEPLOYMENTS,
    Json,
    Said,
    always,
    answering,
)
from tests.front.command_line import CommandLine
from tests.random_cases import SEED, cases
from tests.workflows.environment.harness import a_deployment

Line = Callable[[str], CommandLine]


def deployment(name: str = "qwen", namespace: str = "ml") -> Json:
    """Return a deployment as the front shows it."""
    tree: Json = a_deployment(name, namespace, replicas=2)
    tree["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "1700000000000000",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Available",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    event = {
        "type": "Normal",
        "reason": "Created",
        "message": "it was",
        "count": 1,
        "first": "2026-01-01T00:00:00Z",
        "last": "2026-01-01T00:00:00Z",
    }
    tree["status"] = {
        "observedGeneration": 3,
        "phase": "Ready",
        "conditions": [condition],
        "events": [event],
        "replicas": {"ready": 2, "total": 2},
        "rollout": {
            "updated": 2,
            "updatedReady": 2,
            "total": 2,
            "templateGeneration": 1,
        },
    }
    return tree


def service() -> Json:
    """Return a service as the front shows it."""
    metadata = {
        "name": "chat",
        "namespace": "ml",
        "uid": "u-2",
        "resourceVersion": "1700000000000000",
        "generation": 1,
    }
    endpoints = [
        {
            "name": "qwen-1",
            "entry": "main",
            "cluster": "eu",
            "url": "http://10.0.0.1:80/x",
            "weight": 3,
            "backendName": "b",
        }
    ]
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelService",
        "metadata": metadata,
        "spec": {
            "endpoints": [
                {
                    "name": "main",
                    "weight": 3,
                    "selector": {"matchLabels": {"app": "chat"}},
                }
            ]
        },
        "status": {
            "address": "http://10.0.0.2/ml/chat",
            "endpoints": endpoints,
            "entries": [
                {"name": "main", "matched": 2, "ready": 1, "routed": True, "weight": 3}
            ],
        },
    }


ANOTHER: list[tuple[str, Json]] = [
    ("another name", deployment("other")),
    ("another namespace", deployment(namespace="other")),
    ("another kind", {**deployment(), "kind": "ModelReplica"}),
    ("another group", {**deployment(), "apiVersion": "v1"}),
    ("no metadata", {**deployment(), "metadata": None}),
    (
        "a name that is none",
        {**deployment(), "metadata": {"name": ["qwen"], "namespace": "ml"}},
    ),
    ("a status that is none", {**deployment(), "status": "Ready"}),
    ("conditions that are none", {**deployment(), "status": {"conditions": "Ready"}}),
    ("a condition that is none", {**deployment(), "status": {"conditions": ["Ready"]}}),
    (
        "a generation that is none",
        {**deployment(), "status": {"observedGeneration": "many"}},
    ),
    ("a spec that is none", {**deployment(), "spec": [1]}),
]


@pytest.mark.parametrize(("story", "tree"), ANOTHER, ids=[row[0] for row in ANOTHER])
async def test_an_object_that_was_not_requested_is_not_shown(
    line: Line, story: str, tree: Json
) -> None:
    async with answering(always(Said(200, tree))) as front:
        shown = await line(front.url).run("get", "md/qwen", "-n", "ml", "-o", "yaml")
    assert (shown.code, shown.out) == (ExitCode.FAILED, ""), story
    assert (
        "answer about ModelDeployment ml/qwen is not valid for this program"
        in shown.err
    )


@pytest.mark.parametrize(
    ("tree", "field"),
    [
        (
            {**deployment(), "metadata": {"name": ["qwen"], "namespace": "ml"}},
            "metadata.name: ",
        ),
        ({**deployment(), "status": {"phase": 5}}, "status.phase: "),
    ],
    ids=["metadata", "status"],
)
async def test_a_field_that_cannot_be_read_is_named(
    line: Line, tree: Json, field: str
) -> None:
    async with answering(always(Said(200, tree))) as front:
        shown = await line(front.url).run("get", "md/qwen", "-n", "ml", "-o", "yaml")
    assert f"  {field}" in shown.err


async def test_a_list_must_contain_only_requested_objects(line: Line) -> None:
    wrong: list[Any] = [
        [deployment(), deployment("b", "other")],
        [{**deployment(), "kind": "ModelService"}],
        "none",
        [5],
        [{}],
    ]
    for items in wrong:
        async with answering(
            always(Said(200, {"items": items, "metadata": {}}))
        ) as front:
            shown = await line(front.url).run("get", "md", "-n", "ml")
        assert (shown.code, shown.out) == (ExitCode.FAILED, ""), items


def part(*items: Json, seconds: float = 0.0) -> Said:
    """Return a part of a list that has more parts."""
    return Said(
        200, {"items": items, "metadata": {"continue": "more"}}, seconds=seconds
    )


async def test_a_list_is_read_part_by_part_and_not_for_ever(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(request: Any, _number: int) -> Said:
        first = "continue" not in request.query
        return Said(
            200,
            {
                "items": [deployment("a" if first else "b")],
                "metadata": {"continue": "more/=&"} if first else {},
            },
        )

    async with answering(script) as front:
        shown = await line(front.url).run("get", "md", "-n", "ml", "-o", "name")
    assert shown.out.split() == ["modeldeployment/a", "modeldeployment/b"]
    assert front.asked == [
        ("GET", f"{DEPLOYMENTS}?limit=500"),
        ("GET", f"{DEPLOYMENTS}?limit=500&continue=more%2F%3D%26"),
    ]
    for bound, most, parts in (
        ("_PAGES_MAX", 5, 5),
        ("_LIST_BYTES_MAX", 4 * len(json.dumps(deployment())), 4),
    ):
        with monkeypatch.context() as smaller:
            smaller.setattr(objects, bound, most)
            async with answering(
                lambda _, number: part(deployment(f"a{number}"))
            ) as front:
                shown = await line(front.url).run("get", "md", "-n", "ml")
        assert (
            shown.code,
            shown.out,
            "it goes on after" in shown.err,
            len(front.asked),
        ) == (ExitCode.FAILED, "", True, parts), bound


@pytest.mark.parametrize(
    "items",
    [[], [deployment("a")], [deployment("a"), deployment("b")]],
    ids=["none", "the same", "both"],
)
async def test_a_part_of_a_list_without_another_object_is_not_followed_by_more(
    line: Line, items: list[Json]
) -> None:
    def script(_request: Any, number: int) -> Said:
        return (
            part(*(deployment("a"), deployment("b"))) if number == 1 else part(*items)
        )

    async with answering(script) as front:
        shown = await line(front.url).run("get", "md", "-n", "ml")
    assert (shown.code, shown.out, len(front.asked)) == (ExitCode.FAILED, "", 2)
    assert "repeats the parts before" in shown.err


@pytest.mark.slow
async def test_a_list_that_takes_long_ends_the_command(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_LIST_SECONDS", 0.5)
    async with (
        asyncio.timeout(20),
        answering(
            lambda _, number: part(deployment(f"a{number}"), seconds=0.05)
        ) as front,
    ):
        shown = await line(front.url).run("get", "md", "-n", "ml")
    assert (
        shown.code,
        "has not listed all modeldeployments in namespace ml in 0.5 s" in shown.err,
    ) == (ExitCode.UNREACHABLE, True)
    assert len(front.asked) > 1


async def test_a_token_that_is_too_long_to_be_sent_ends_the_command(line: Line) -> None:
    async with answering(
        always(
            Said(
                200, {"items": [deployment()], "metadata": {"continue": "x" * 100_000}}
            )
        )
    ) as front:
        shown = await line(front.url).run("get", "md", "-n", "ml")
    assert (shown.code, "too long" in shown.err, len(front.asked)) == (
        ExitCode.FAILED,
        True,
        1,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000, b'{"a":' * 100_000, b"[" * 65 + b"]" * 65, b"NaN", b'{"a": Infinity}',
        b'{"a": 1e999}', b'"\\ud800"',
        b'{"\\udfff": 1}', b"\xff\xfe", b"1" * 10_000, b"", b"{} {}", b"{'a': 1}",
    ],
)  # fmt: skip
def test_unusable_json_is_an_error(body: bytes) -> None:
    assert parsed(body) is None


async def test_texts_of_a_server_cannot_control_the_terminal(line: Line) -> None:
    tree = deployment()
    tree["status"]["conditions"][0] |= {
        "status": "False",
        "reason": "\x1b[31mRed",
        "message": "\x1b]0;title\x07 \u202e",
    }
    async with answering(always(Said(200, tree))) as front:
        for words in (
            ["get", "md/qwen", "-o", "wide"],
            ["describe", "md/qwen"],
            ["get", "md/qwen", "-o", "json"],
        ):
            shown = await line(front.url).run(*words, "-n", "ml")
            assert not {"\x1b", "\x07", "\u202e"} & set(shown.out + shown.err), words


COMMANDS = (
    ("get", "md", "-n", "ml", "-o", "wide"),
    ("get", "md/qwen", "-n", "ml", "-o", "yaml"),
    ("describe", "md/qwen", "-n", "ml"),
    ("describe", "ms/chat", "-n", "ml"),
    ("events", "md/qwen", "-n", "ml"),
    ("scale", "md/qwen", "-n", "ml", "--replicas", "2", "--wait", "--timeout", "0"),
    ("rollout", "status", "md/qwen", "-n", "ml", "--timeout", "0"),
    ("rollout", "restart", "md/qwen", "-n", "ml"),
    ("service", "shift", "chat", "main=5", "-n", "ml"),
    ("chat", "chat", "hello", "-n", "ml", "--gateway", "http://127.0.0.1:1"),
    ("delete", "md/qwen", "-n", "ml", "--wait", "--timeout", "0"),
    ("apply", "-f", "FILE"),
    ("apply", "-f", "FILE", "--dry-run=server"),
)
VALUES: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    "x",
    -1,
    1.5,
    10**30,
    True,
    [None],
    {"": None},
    "\x1b[0m",
    "http://[",
    [[]],
    {"name": 5},
)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place of a tree: its container, and its key there."""
    for key in (
        list(tree)
        if isinstance(tree, dict)
        else range(len(tree))
        if isinstance(tree, list)
        else ()
    ):
        yield tree, key
        yield from places(tree[key])


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words) for words in COMMANDS])
async def test_no_change_of_an_answer_ends_a_command_with_a_traceback(
    line: Line, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "FILE.json").write_text(
        json.dumps(a_deployment("qwen", "ml", replicas=3))
    )
    monkeypatch.setattr("fleet_client.requests.ANSWER_SECONDS", 0.0)
    monkeypatch.setattr("fleet_client.requests.READ_SECONDS", 0.0)
    monkeypatch.setattr("client.follow.edit._PAUSES", ())
    draw = random.Random()  # noqa: S311

    def script(request: Any, _number: int) -> Said:
        one = {"qwen": deployment, "chat": service}.get(
            request.path.split("/")[7] if request.path.count("/") > 6 else ""
        )
        tree: Any = (
            deepcopy(one())
            if one
            else {
                "items": [deployment()] if "deployments" in request.path else [],
                "metadata": {},
            }
        )
        if draw.random() < 0.9:
            holder, key = draw.choice(list(places(tree)))
            holder[key] = draw.choice(VALUES)
        return Said(200, tree)

    async with answering(script) as front:
        commands = line(front.url)
        for case in range(cases(40)):
            draw.seed(f"{SEED} {case}")
            shown = await commands.run(
                *(
                    str(tmp_path / "FILE.json") if word == "FILE" else word
                    for word in words
                )
            )
            assert shown.code in set(ExitCode), (case, shown)


def test_every_kind_of_a_list_has_a_model_to_compare_with() -> None:
    assert [
        info.kind
        for info in SERVED
        if not {"spec", "status"} <= set(info.model.model_fields)
    ] == []
    assert json.loads(json.dumps(deployment())) == deployment()
