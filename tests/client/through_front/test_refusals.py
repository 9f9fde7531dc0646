"""Refusals of the front, and other servers: an exit code, plain words, a next step, and
never a traceback.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.failures import ExitCode
from fleet_client.through_front import requests
from tests.client.through_front.answering import (
    DEPLOYMENTS,
    Said,
    a_status,
    always,
    answering,
    not_there,
)
from tests.front.command_line import CommandLine
from tests.workflows.environment.harness import a_deployment

Line = Callable[[str], CommandLine]
TOKEN = "token-that-nobody-may-see"  # noqa: S105
GET = ("get", "md/qwen", "-n", "ml")
HTML = b"<html>not a front</html>"

REFUSALS: list[tuple[Said, ExitCode, str]] = [
    (
        Said(401, a_status(401, "Unauthorized")),
        ExitCode.UNREACHABLE,
        "does not know you",
    ),
    (
        Said(403, a_status(403, "Forbidden")),
        ExitCode.REFUSED,
        "you may not do this with ModelDeployment ml/qwen",
    ),
    (not_there(), ExitCode.NOT_FOUND, "ModelDeployment ml/qwen does not exist"),
    (
        Said(404, a_status(404, "Other", name="qwen", kind="modeldeployments")),
        ExitCode.FAILED,
        "does not serve ModelDeployment ml/qwen",
    ),
    (
        Said(404, a_status(404, "NotFound")),
        ExitCode.FAILED,
        "does not serve ModelDeployment ml/qwen",
    ),
    (Said(409, a_status(409, "Conflict")), ExitCode.CONFLICT, "cannot be changed now"),
    (Said(409, a_status(409, "AlreadyExists")), ExitCode.CONFLICT, "exists already"),
    (
        Said(413, a_status(413, "RequestEntityTooLarge")),
        ExitCode.REFUSED,
        "too large for the front",
    ),
    (
        Said(415, a_status(415, "UnsupportedMediaType")),
        ExitCode.REFUSED,
        "was refused by the front",
    ),
    (
        Said(400, a_status(400, "BadRequest")),
        ExitCode.REFUSED,
        "was refused by the front",
    ),
    (
        Said(429, a_status(429, "TooManyRequests"), {"Retry-After": "600"}),
        ExitCode.FAILED,
        "limits your requests",
    ),
    (
        Said(500, a_status(500, "InternalError")),
        ExitCode.FAILED,
        "failed to handle a request about ModelDeployment ml/qwen",
    ),
    (
        Said(503, a_status(503, "ServiceUnavailable")),
        ExitCode.UNREACHABLE,
        "cannot answer about ModelDeployment ml/qwen now",
    ),
    # Answers of servers that are no fronts.
    (Said(404, HTML), ExitCode.UNREACHABLE, "answered 404, and is not a front"),
    (Said(502, HTML), ExitCode.UNREACHABLE, "answered 502, and is not a front"),
    (
        Said(403, {"kind": "Status", "message": 5, "reason": []}),
        ExitCode.REFUSED,
        "you may not do this",
    ),
    (Said(401, ["Status"]), ExitCode.UNREACHABLE, "is not a front"),
    (
        Said(200, HTML),
        ExitCode.FAILED,
        "answer about ModelDeployment ml/qwen is not valid",
    ),
    (
        Said(204, b""),
        ExitCode.FAILED,
        "answer about ModelDeployment ml/qwen is not valid",
    ),
    (
        Said(200, a_status(200, "Success")),
        ExitCode.FAILED,
        "answer about ModelDeployment ml/qwen is not valid",
    ),
]


@pytest.mark.parametrize(
    ("said", "code", "says"),
    REFUSALS,
    ids=[f"{row[0].status} {row[2]}" for row in REFUSALS],
)
async def test_every_refusal_has_its_exit_code_its_words_and_a_next_step(
    line: Line, said: Said, code: ExitCode, says: str
) -> None:
    async with answering(always(said)) as front:
        shown = await line(front.url).run(*GET, token=TOKEN)
    assert (shown.code, shown.out) == (code, "")
    assert says in shown.err.splitlines()[0]
    assert shown.err.splitlines()[-1].startswith("next: ")
    assert TOKEN not in shown.err


NOT_OF_THE_OBJECT: list[Any] = [
    {}, {"kind": "modeldeployments"}, {"name": "qwen"},
    {"kind": "modeldeployments", "name": "other"}, [], "qwen", None,
    {"kind": "modelreplicas", "name": "qwen"}, {"kind": "namespaces", "name": "ml"},
    {"kind": ["modeldeployments"], "name": "qwen"},
]  # fmt: skip


@pytest.mark.parametrize("details", NOT_OF_THE_OBJECT, ids=str)
async def test_an_unserved_path_is_not_reported_as_a_missing_object(
    line: Line, tmp_path: Path, details: Any
) -> None:
    """Otherwise a deletion would seem done, and an object created, with a server that
    knows neither.
    """
    (tmp_path / "md.json").write_text(json.dumps(a_deployment("qwen", "ml")))
    async with answering(
        always(Said(404, a_status(404, "NotFound") | {"details": details}))
    ) as front:
        for words in (
            ["delete", "md/qwen", "--ignore-not-found"],
            ["apply", "-f", str(tmp_path / "md.json")],
            ["get", "md"],
        ):
            shown = await line(front.url).run(*words, "-n", "ml")
            assert (shown.code, shown.out, "does not serve" in shown.err) == (
                ExitCode.FAILED,
                "",
                True,
            ), shown
    assert [method for method, _ in front.asked] == ["DELETE", "GET", "GET"]


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (not_there(), ExitCode.DONE),
        (Said(404, a_status(404, "NotFound")), ExitCode.FAILED),
    ],
    ids=["gone", "not served"],
)
async def test_a_deletion_that_is_waited_for_ends_well_only_when_the_object_is_gone(
    line: Line, after: Said, code: ExitCode
) -> None:
    deleted = Said(200, a_status(200, "Success"))
    async with answering(
        lambda request, _: deleted if request.method == "DELETE" else after
    ) as front:
        shown = await line(front.url).run("delete", "md/qwen", "-n", "ml", "--wait")
    assert shown.code == code, shown


@pytest.mark.parametrize("status", [400, 403, 409, 429, 500, 503])
async def test_the_message_of_a_refusal_is_shown(line: Line, status: int) -> None:
    async with answering(
        always(Said(status, a_status(status, "Other"), {"Retry-After": "600"}))
    ) as front:
        shown = await line(front.url).run(*GET)
    assert shown.err.splitlines()[1] == "  it says why"


async def test_each_field_that_is_wrong_has_a_line(line: Line, tmp_path: Path) -> None:
    found = [
        {"field": "spec.replicas", "message": "must be positive"},
        {"field": "spec.x", "message": "unknown field"},
    ]
    causes = [*found, "no cause", {"field": 4}]
    status = a_status(422, "Invalid", "all of it in one line", causes=causes)
    (tmp_path / "md.json").write_text(json.dumps(a_deployment("qwen", "ml")))

    def script(request: Any, _number: int) -> Said:
        return not_there() if request.method == "GET" else Said(422, status)

    async with answering(script) as front:
        shown = await line(front.url).run("apply", "-f", str(tmp_path / "md.json"))
    lines = [each.strip() for each in shown.err.splitlines()]
    assert (shown.code, lines[0]) == (
        ExitCode.REFUSED,
        "error: ModelDeployment ml/qwen was refused by the front",
    )
    assert lines[1:3] == ["spec.replicas: must be positive", "spec.x: unknown field"]


async def test_a_throttled_request_is_retried_after_the_given_time(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_PAUSE_SECONDS_MIN", 0)
    limited = Said(429, a_status(429, "TooManyRequests"), {"Retry-After": "0"})
    async with answering(
        lambda _, number: limited if number < 4 else not_there()
    ) as front:
        shown = await line(front.url).run(*GET)
    assert shown.code == ExitCode.NOT_FOUND
    # The last request lists names for a suggestion.
    paths = [path.partition("?")[0] for _, path in front.asked]
    assert paths == [f"{DEPLOYMENTS}/qwen"] * 4 + [DEPLOYMENTS]


@pytest.mark.parametrize("after", ["600", "-1", "1e9", "soon", "9" * 400, ""])
async def test_no_front_makes_a_command_wait_for_long(
    line: Line, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(requests, "_LIMITED_SECONDS_MAX", 0.5)
    async with answering(
        always(Said(429, a_status(429, "TooManyRequests"), {"Retry-After": after}))
    ) as front:
        shown = await line(front.url).run(*GET)
    assert (shown.code, len(front.asked)) == (ExitCode.FAILED, 1)
    assert shown.err.splitlines()[-1].startswith("next: run the command again ")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_token_is_not_forwarded(
    line: Line, status: int
) -> None:
    async with answering(always(Said(404, HTML))) as other:
        said = Said(
            status, a_status(status, "Moved"), {"Location": f"{other.url}/apis"}
        )
        async with answering(always(said)) as front:
            shown = await line(front.url).run(*GET, token=TOKEN)
    assert (shown.code, other.asked) == (ExitCode.UNREACHABLE, [])
    assert front.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert "redirections are not followed" in shown.err


async def test_proxies_of_the_environment_do_not_get_the_token(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        answering(always(Said(404, HTML))) as proxy,
        answering(always(not_there())) as front,
    ):
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        shown = await line(front.url).run(*GET, token=TOKEN)
    assert (shown.code, proxy.asked) == (ExitCode.NOT_FOUND, [])


@pytest.mark.slow
async def test_an_answer_that_does_not_come_ends_the_command(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_ANSWER_SECONDS", 0.2)
    async with answering(always(Said(200, {}, seconds=5))) as front:
        read = await line(front.url).run(*GET)
        written = await line(front.url).run(
            "scale", "md/qwen", "-n", "ml", "--replicas", "2"
        )
    assert (read.code, "did not answer in time" in read.err, "carried" in read.err) == (
        ExitCode.UNREACHABLE,
        True,
        False,
    )
    assert (written.code, "it may have carried the request out" in written.err) == (
        ExitCode.UNREACHABLE,
        True,
    )


NO_ANSWERS = {
    "broken": Said(breaks=True),
    "late": Said(200, {}, seconds=5),
    "endless": Said(drips=True),
    "too large": Said(200, b" " * 2048),
    "packed": Said(200, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("said", NO_ANSWERS.values(), ids=list(NO_ANSWERS))
async def test_an_unanswered_write_is_reported_as_possibly_applied(
    line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: Said
) -> None:
    # Long enough for a busy machine to answer the reads before each write.
    monkeypatch.setattr(requests, "_ANSWER_SECONDS", 1.5)
    monkeypatch.setattr(requests, "_ANSWER_BYTES_MAX", 1024)
    (tmp_path / "md.json").write_text(json.dumps(a_deployment("qwen", "ml")))
    apply = ["apply", "-f", str(tmp_path / "md.json")]
    writes = (
        ["scale", "md/qwen", "--replicas", "2", "-n", "ml"],
        ["delete", "md/qwen", "-n", "ml"],
        apply,
    )
    async with answering(
        lambda request, _: not_there() if request.method == "GET" else said
    ) as front:
        for words in writes:
            shown = await line(front.url).run(*words)
            assert (
                shown.code in {ExitCode.UNREACHABLE, ExitCode.FAILED},
                "it may have carried" in shown.err,
            ) == (True, True), shown
            assert shown.err.splitlines()[-1].startswith(
                "next: check the object with `modelplane get`"
            )
        shown = await line(front.url).run(*apply, "--dry-run=server")
        assert (shown.code == ExitCode.DONE, "carried" in shown.err) == (False, False)
    async with answering(always(said)) as front:
        shown = await line(front.url).run(*GET)
    assert (shown.code == ExitCode.DONE, "carried" in shown.err) == (False, False)
    for words in writes[:2]:
        shown = await line("http://127.0.0.1:1").run(*words)
        assert (shown.code, "carried" in shown.err) == (ExitCode.UNREACHABLE, False)


@pytest.mark.slow
async def test_an_answer_that_never_ends_ends_the_command(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_ANSWER_SECONDS", 0.5)
    async with asyncio.timeout(20), answering(always(Said(drips=True))) as front:
        shown = await line(front.url).run(*GET)
    assert (shown.code, "did not answer in time" in shown.err) == (
        ExitCode.UNREACHABLE,
        True,
    )


async def test_a_front_that_is_not_there_is_named(line: Line) -> None:
    shown = await line("http://127.0.0.1:1").run(*GET, token=TOKEN)
    assert (shown.code, shown.err.splitlines()[0]) == (
        ExitCode.UNREACHABLE,
        "error: the front at http://127.0.0.1:1 does not answer",
    )
    shown = await line("https://name-that-no-one-has.invalid").run(*GET, token=TOKEN)
    assert shown.code == ExitCode.UNREACHABLE


async def test_an_answer_is_read_up_to_its_limit_and_not_decompressed(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_ANSWER_BYTES_MAX", 1 << 20)
    async with answering(always(Said(200, b" " * (4 << 20)))) as front:
        shown = await line(front.url).run(*GET)
    assert (shown.code, "is larger than 1 MiB and was not read" in shown.err) == (
        ExitCode.FAILED,
        True,
    )
    async with answering(
        always(Said(200, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"}))
    ) as front:
        shown = await line(front.url).run(*GET)
    assert (shown.code, "compresses its answers" in shown.err) == (
        ExitCode.FAILED,
        True,
    )
    assert front.headers[0]["Accept-Encoding"] == "identity"


async def test_a_write_that_is_repeated_by_a_limit_is_the_same(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_PAUSE_SECONDS_MIN", 0)
    limited = Said(429, a_status(429, "TooManyRequests"))
    async with answering(
        lambda _, number: limited if number < 3 else not_there()
    ) as front:
        shown = await line(front.url).run(
            "scale", "md/qwen", "-n", "ml", "--replicas", "2"
        )
    assert shown.code == ExitCode.NOT_FOUND
    assert front.asked == [("PATCH", f"{DEPLOYMENTS}/qwen/scale")] * 3
    assert front.bodies == [b'{"spec": {"replicas": 2}}'] * 3
