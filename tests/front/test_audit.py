"""The audit log has a line for each write or rejected write, before it is answered.

Writes without a line are rejected.
"""

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api_types.resources.kinds import BY_KIND
from api_types.sections.front import FrontSettings
from fleet_client.errors import Refused
from front.access.limits import Allowance, Limits
from front.audit import log as module
from front.audit.log import AuditLog, Unwritable
from front.main import _audit_log
from front.serving import access_reviews
from front.serving.auditing import HEADER
from tests.front.fleet_of_tenants import START, Fleet, a_fleet, an_object
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments"
MINE = PATH.format("a")
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
SCALE = b'{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{},"spec":{"replicas":5}}'
PLANTED = "planted-secret"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.jsonl"


@pytest.fixture
async def fleet(tmp_path: Path, file: Path) -> AsyncIterator[Fleet]:
    file.parent.mkdir()
    async with a_fleet(tmp_path, audit_log=AuditLog(str(file))) as fleet:
        yield fleet


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def a_document(name: str, **spec: Any) -> bytes:
    tree = an_object(BY_KIND["ModelDeployment"], "a", name, START)
    tree["metadata"] = {"name": name}
    (container,) = tree["spec"]["template"]["spec"]["engines"][0]["members"][0][
        "template"
    ]["spec"]["containers"]
    container["env"] = [{"name": "TOKEN", "value": PLANTED}]
    tree["spec"] |= spec
    return json.dumps(tree).encode()


async def test_each_write_has_a_line_with_user_object_and_changed_fields(
    fleet: Fleet, file: Path
) -> None:
    assert (await fleet.ask("POST", MINE, body=a_document("fresh", replicas=1)))[
        0
    ] == 201
    _, body = await fleet.ask(
        "PATCH",
        f"{MINE}/fresh",
        body=b'{"spec":{"replicas":4}}',
        **{"Content-Type": MERGE},
    )
    assert (await fleet.ask("PUT", f"{MINE}/fresh/scale", body=SCALE))[0] == 200
    assert (await fleet.ask("DELETE", f"{MINE}/fresh"))[0] == 200
    created, patched, scaled, deleted = lines(file)
    fields = (
        "user",
        "groups",
        "method",
        "resource",
        "namespace",
        "name",
        "dryRun",
        "code",
        "outcome",
    )
    common = ("ann", ["team-a", "system:authenticated"])
    assert [
        tuple(line[field] for field in fields)
        for line in (created, patched, scaled, deleted)
    ] == [
        (*common, "POST", "modeldeployments", "a", "fresh", False, 201, "Success"),
        (*common, "PATCH", "modeldeployments", "a", "fresh", False, 200, "Success"),
        (*common, "PUT", "modeldeployments/scale", "a", "fresh", False, 200, "Success"),
        (*common, "DELETE", "modeldeployments", "a", "fresh", False, 200, "Success"),
    ]
    assert [line["verb"] for line in (created, patched, scaled, deleted)] == [
        "create",
        "patch",
        "update",
        "delete",
    ]
    assert (created["before"], created["after"], patched["before"]) == (
        "",
        str(START + 1),
        created["after"],
    )
    assert (
        patched["after"]
        == json.loads(body)["metadata"]["resourceVersion"]
        == scaled["before"]
    )
    assert patched["changes"] == [{"path": "spec.replicas", "old": 1, "new": 4}]
    assert scaled["changes"] == [{"path": "spec.replicas", "old": 4, "new": 5}]
    paths = {
        change["path"].rpartition(".containers")[2]: change
        for change in created["changes"]
    }
    assert "new" not in paths["[0].env[0].value"]
    assert {"path": "spec.replicas", "new": 1} in created["changes"]
    assert PLANTED not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_the_line_has_the_request_id_of_the_workflow_and_the_answer(
    fleet: Fleet, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    signal = fleet.plane.signal

    async def noted(target: Any, name: Any, message: Any) -> None:
        sent.append((message.request_id, message.by))
        await signal(target, name, message)

    monkeypatch.setattr(fleet.plane, "signal", noted)
    _, _, headers = await fleet.answer("PUT", f"{MINE}/mine/scale", body=SCALE)
    (line,) = lines(file)
    assert sent == [(line["requestId"], "ann")]
    assert headers[HEADER] == line["id"]


STALE = b'{"metadata":{"resourceVersion":"1"}}'
FAILING = b'[{"op":"test","path":"/spec","value":"planted-secret"}]'
UNKNOWN_FIELD = b'{"spec":{"planted-secret":"planted-secret"}}'
REFUSED: list[tuple[str, str, str, bytes | None, str, int, str, str]] = [
    ("", "POST", MINE, b"{}", "", 401, "Unauthorized", ""),
    ("ann", "DELETE", PATH.format("b") + "/other", None, "", 403, "Forbidden", "delete"),
    ("ann", "PATCH", PATH.format("b") + "/none", b"{}", MERGE, 403, "Forbidden", "patch"),
    ("ann", "POST", PATH.format("b"), b"{}", "", 403, "Forbidden", "create"),
    ("ann", "DELETE", f"{MINE}/none", None, "", 404, "NotFound", "delete"),
    ("ann", "POST", "/nothing", b"{}", "", 404, "NotFound", ""),
    ("ann", "PUT", f"{MINE}/mine/status", b"{}", "", 405, "MethodNotAllowed", ""),
    ("ann", "REPORT", MINE, None, "", 405, "MethodNotAllowed", ""),
    ("ann", "POST", MINE, b"{", "", 400, "BadRequest", "create"),
    ("ann", "POST", MINE, b"x" * (2 * 1024 * 1024 + 1), "", 413, "RequestEntityTooLarge", "create"),
    ("ann", "POST", MINE, b"{}", "text/plain", 415, "UnsupportedMediaType", "create"),
    ("ann", "PATCH", f"{MINE}/mine", STALE, MERGE, 409, "Conflict", "patch"),
    ("ann", "PATCH", f"{MINE}/mine", FAILING, JSON_PATCH, 422, "Invalid", "patch"),
    ("ann", "PATCH", f"{MINE}/mine", UNKNOWN_FIELD, MERGE, 422, "Invalid", "patch"),
]  # fmt: skip


@pytest.mark.parametrize(
    "row", REFUSED, ids=lambda row: f"{row[1]} {row[5]} {row[6]} {row[0]}"
)
async def test_each_rejected_write_has_a_line_with_the_reason(
    fleet: Fleet,
    file: Path,
    row: tuple[str, str, str, bytes | None, str, int, str, str],
) -> None:
    user, method, path, body, kind, code, reason, verb = row
    before = dict(fleet.plane.trees)
    status, _ = await fleet.ask(
        method, path, user, body, **({"Content-Type": kind} if kind else {})
    )
    (line,) = lines(file)
    assert (
        status,
        line["code"],
        line["outcome"],
        line["user"],
        line["verb"],
        line["path"],
    ) == (code, code, reason, user, verb, path)
    assert "changes" not in line
    assert PLANTED not in file.read_text()
    assert fleet.plane.trees == before


async def test_a_deleted_collection_has_a_line_for_each_object(
    fleet: Fleet, file: Path
) -> None:
    assert (await fleet.ask("POST", MINE, body=a_document("fresh")))[0] == 201
    assert (await fleet.ask("DELETE", MINE))[0] == 200
    assert [(line["verb"], line["name"]) for line in lines(file)[1:]] == [
        ("deletecollection", "fresh"),
        ("deletecollection", "mine"),
    ]
    assert len({line["id"] for line in lines(file)[1:]}) == 1


@pytest.mark.parametrize(
    ("query", "body"), [("?dryRun=All", None), ("", b'{"dryRun":["All"]}')]
)
async def test_a_dry_run_is_marked_and_changes_nothing(
    fleet: Fleet, file: Path, query: str, body: bytes | None
) -> None:
    assert (await fleet.ask("DELETE", f"{MINE}/mine{query}", body=body))[0] == 200
    (line,) = lines(file)
    assert (line["dryRun"], line["name"], "changes" in line, "requestId" in line) == (
        True,
        "mine",
        False,
        False,
    )


async def test_the_line_has_the_effective_dry_run(fleet: Fleet, file: Path) -> None:
    for query, code in (
        ("", 200),
        ("?dryRun=", 422),
        ("?dryRun=&dryRun=All", 422),
        ("?dryRun=None", 422),
    ):
        assert (await fleet.ask("PUT", f"{MINE}/mine/scale{query}", body=SCALE))[
            0
        ] == code
    told = [
        (line["code"], line["dryRun"], bool(line.get("changes")))
        for line in lines(file)
    ]
    assert told == [(200, False, True), *[(422, False, False)] * 3]


async def test_reads_reviews_and_limited_requests_have_no_line(
    tmp_path: Path, file: Path
) -> None:
    file.parent.mkdir()
    limits = Limits(Allowance(per_second=1e-6, burst=5, requests=10, watches=10))
    async with a_fleet(tmp_path, audit_log=AuditLog(str(file)), limits=limits) as fleet:
        asked = {
            "resourceAttributes": {"verb": "get", "resource": "x", "namespace": "a"},
            "namespace": "a",
        }
        review = json.dumps({"spec": asked}).encode()
        for path in access_reviews.PATHS:
            assert (await fleet.ask("POST", path, body=review))[0] == 201
        assert (await fleet.ask("GET", MINE))[0] == 200
        assert (await fleet.ask("GET", PATH.format("b")))[0] == 403
        assert (await fleet.ask("DELETE", f"{MINE}/mine"))[0] == 429
    assert lines(file) == []


async def test_text_of_a_request_cannot_forge_a_line(fleet: Fleet, file: Path) -> None:
    await fleet.ask("POST", '/x%0A%7B"user":"root"%7D%1B[2J', body=b"{}")
    (line,) = lines(file)
    assert (line["user"], "\x1b" in file.read_text()) == ("ann", False)


async def test_writes_are_rejected_while_the_file_is_not_writable(
    fleet: Fleet, file: Path
) -> None:
    aside = file.parent.rename(file.parent.with_name("aside"))
    for method, path, body in (
        ("PUT", f"{MINE}/mine/scale", SCALE),
        ("POST", PATH.format("b"), b"{}"),
        ("DELETE", f"{MINE}/mine", None),
    ):
        status, answer = await fleet.ask(method, path, body=body)
        assert (status, json.loads(answer)["reason"]) == (503, "ServiceUnavailable")
        assert str(file.parent) not in answer.decode()
    assert fleet.plane.touched == []
    assert (await fleet.ask("GET", MINE))[0] == 200
    aside.rename(file.parent)
    assert (await fleet.ask("DELETE", f"{MINE}/mine"))[0] == 200
    assert [line["verb"] for line in lines(file)] == ["delete"]


async def test_a_write_without_its_line_gets_503_and_the_line_precedes_the_next_write(
    fleet: Fleet, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = os.write, [True]

    def half_a_line(to: int, text: bytes) -> int:
        if not full[0]:
            return write(to, text)
        full.append(True)
        if len(full) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(to, text[:20])

    monkeypatch.setattr(os, "write", half_a_line)
    status, answer = await fleet.ask("PUT", f"{MINE}/mine/scale", body=SCALE)
    assert (status, "was answered with 200" in json.loads(answer)["message"]) == (
        503,
        True,
    )
    touched = list(fleet.plane.touched)
    assert (await fleet.ask("DELETE", f"{MINE}/mine"))[0] == 503
    assert fleet.plane.touched == touched
    full[0] = False
    assert (await fleet.ask("DELETE", f"{MINE}/mine"))[0] == 200
    whole = [
        json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")
    ]
    assert [(line["verb"], line["code"]) for line in whole] == [
        ("update", 200),
        ("delete", 200),
    ]


async def test_a_renamed_file_is_replaced_by_a_new_one(
    fleet: Fleet, file: Path
) -> None:
    await fleet.ask("DELETE", f"{MINE}/mine?dryRun=All")
    older = file.rename(file.with_suffix(".1"))
    await fleet.ask("DELETE", f"{MINE}/mine")
    assert [[line["dryRun"] for line in lines(each)] for each in (older, file)] == [
        [True],
        [False],
    ]


@pytest.mark.slow
async def test_an_interrupted_request_has_a_line(
    fleet: Fleet, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(fleet.plane, "signal", never)
    asked = asyncio.create_task(fleet.ask("PUT", f"{MINE}/mine/scale", body=SCALE))

    async def touched() -> bool:
        return bool(fleet.plane.touched)

    await eventually(touched, bool, what="the request")
    runner = fleet.client.server.runner
    assert runner
    runner._shutdown_timeout = 0.01
    await fleet.client.server.close()
    with pytest.raises(aiohttp.ClientError):
        await asked
    (line,) = lines(file)
    assert (line["outcome"], line["code"], line["name"], line["after"]) == (
        "Interrupted",
        0,
        "mine",
        "",
    )
    assert line["requestId"]


@pytest.mark.slow
async def test_an_unread_pipe_delays_a_write_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.2)
    audit_log = AuditLog(str(pipe))
    with pytest.raises(Unwritable, match="accepts no data"):
        await audit_log.write(lambda: b"x" * 1024 * 1024)
    with pytest.raises(Unwritable, match="accepts no data"):
        await audit_log.check()
    monkeypatch.setattr(module, "_END_SECONDS", 0.2)
    with pytest.raises(Unwritable, match="accepts no data"):
        await audit_log.end()
    os.close(reader)


def test_an_unusable_file_is_rejected_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"front\.auditFile: .*No such file"):
        _audit_log(FrontSettings(audit_file=str(tmp_path / "none" / "audit.jsonl")))
    with pytest.raises(Refused, match=r"front\.auditFile: .*Is a directory"):
        _audit_log(FrontSettings(audit_file=str(tmp_path)))


async def test_lines_can_go_to_standard_output(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with a_fleet(tmp_path, audit_log=_audit_log(FrontSettings())) as fleet:
        await fleet.ask("DELETE", f"{MINE}/mine")
    assert [
        json.loads(line)["verb"] for line in capfd.readouterr().out.splitlines()
    ] == ["delete"]
