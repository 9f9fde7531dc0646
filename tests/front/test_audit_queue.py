"""Queued audit lines survive cancelled requests, and unknown callers cannot fill the
disk.
"""

import asyncio
import errno
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from front.audit import log as module
from front.audit.escaped import TEXT_BYTES_MAX, fitting
from front.audit.event import LINE_BYTES_MAX, AuditEvent, Change
from front.audit.log import AuditLog, Unwritable
from front.audit.unknown_callers import LINES_PER_SECOND, UnknownCallers
from front.serving.auditing import HEADER
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.harness import eventually

MINE = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
SCALE = b'{"metadata":{},"spec":{"replicas":5}}'
FULL = b"x" * 200_000 + b"\n"
SMILE = "\N{GRINNING FACE}"


@dataclass
class Pipe:
    """A pipe instead of the file. The test decides when it is read."""

    path: Path
    reader: int
    taken: bytes = b""

    async def read(self) -> bytes:
        """Read the available bytes; return all bytes read so far."""
        with suppress(BlockingIOError):
            while part := os.read(self.reader, 1 << 20):
                self.taken += part
        return self.taken


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.2)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    yield Pipe(tmp_path / "pipe", reader)
    os.close(reader)


@pytest.mark.slow
async def test_a_line_that_times_out_behind_another_is_written_later(
    pipe: Pipe,
) -> None:
    audit_log = AuditLog(str(pipe.path))
    written = await asyncio.gather(
        audit_log.write(lambda: FULL),
        audit_log.write(lambda: b"second\n"),
        return_exceptions=True,
    )
    assert [type(each) for each in written] == [Unwritable, Unwritable]
    await eventually(
        pipe.read, lambda taken: taken == FULL + b"second\n", what="both lines"
    )
    await audit_log.check()


@pytest.mark.slow
async def test_a_queued_line_is_written_though_its_request_is_cancelled(
    pipe: Pipe,
) -> None:
    audit_log = AuditLog(str(pipe.path))
    waiting = [
        asyncio.create_task(audit_log.write(partial(bytes, line)))
        for line in (FULL, b"second\n", b"third\n")
    ]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    assert [
        type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)
    ] == [asyncio.CancelledError] * 3
    await eventually(
        pipe.read, lambda taken: taken == FULL + b"second\nthird\n", what="all lines"
    )


@dataclass
class Stuck:
    """A log in a file, whose thread waits until the test releases it."""

    audit_log: AuditLog
    goes_on: threading.Event


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    made = Stuck(AuditLog(str(tmp_path / "audit")), threading.Event())
    made.audit_log._thread.submit(made.goes_on.wait, 20)
    yield made
    made.goes_on.set()


async def test_cancelling_a_request_cancels_no_other_queued_request(
    stuck: Stuck, tmp_path: Path
) -> None:
    cancelled, other = (
        asyncio.create_task(stuck.audit_log.write(partial(bytes, line)))
        for line in (b"first\n", b"second\n")
    )
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    stuck.goes_on.set()
    await other
    assert (tmp_path / "audit").read_bytes() == b"first\nsecond\n"


async def test_a_written_line_is_not_reported_as_lost_when_a_later_one_fails(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(to: int, text: bytes) -> int:
        if text == b"second\n":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(to, text)

    monkeypatch.setattr(os, "write", full)
    waiting = [
        asyncio.create_task(stuck.audit_log.write(partial(bytes, line)))
        for line in (b"first\n", b"second\n")
    ]
    await asyncio.sleep(0)
    stuck.goes_on.set()
    written = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in written] == [type(None), Unwritable]


@pytest.mark.slow
async def test_requests_are_rejected_while_many_lines_are_queued(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNWRITTEN_MAX", 2)
    audit_log = AuditLog(str(pipe.path))
    for line in (FULL, b"second\n", b"third\n"):
        audit_log.append(partial(bytes, line))
    with pytest.raises(Unwritable, match="of 2 requests"):
        await audit_log.check()
    # Requests in progress still add their lines.
    await eventually(
        pipe.read, lambda taken: taken == FULL + b"second\nthird\n", what="all lines"
    )
    await audit_log.check()
    # For any number of waiting requests, the thread makes one further pass.
    assert audit_log._thread._work_queue.qsize() <= 1


@pytest.mark.slow
async def test_requests_at_a_stuck_file_leave_no_work_behind(
    pipe: Pipe,
) -> None:
    audit_log = AuditLog(str(pipe.path))
    await asyncio.gather(
        *(audit_log.write(lambda: FULL) for _ in range(5)), return_exceptions=True
    )
    assert audit_log._thread._work_queue.qsize() <= 1
    await eventually(pipe.read, lambda taken: taken == FULL * 5, what="all lines")


@pytest.mark.slow
async def test_a_line_added_at_the_end_of_a_pass_is_written_before_success_is_reported(
    tmp_path: Path,
) -> None:
    goes_on = threading.Event()
    goes_on.set()

    class Slow(AuditLog):
        def _drain(self) -> None:
            super()._drain()
            assert goes_on.wait(20)

    audit_log = Slow(str(tmp_path / "audit"))
    goes_on.clear()
    first = asyncio.create_task(audit_log.write(lambda: b"first\n"))

    async def written() -> bytes:
        return (tmp_path / "audit").read_bytes()

    await eventually(written, lambda text: text == b"first\n", what="the first line")
    second = asyncio.create_task(audit_log.write(lambda: b"second\n"))
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.gather(first, second)
    assert await written() == b"first\nsecond\n"


async def test_an_unwritten_line_at_shutdown_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_log = AuditLog(str(tmp_path / "audit"))
    drained, late = audit_log._drained, [True]

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def then_one_more(seconds: float) -> None:
        await drained(seconds)
        if late.pop() if late else False:
            monkeypatch.setattr(os, "write", full)
            audit_log.append(lambda: b"late\n")

    monkeypatch.setattr(audit_log, "_drained", then_one_more)
    with pytest.raises(Unwritable, match="No space left"):
        await audit_log.end()


async def test_an_error_in_making_lines_is_raised_and_blocks_no_other_line(
    tmp_path: Path,
) -> None:
    audit_log = AuditLog(str(tmp_path / "audit"))

    def bad() -> bytes:
        raise ZeroDivisionError

    written = await asyncio.gather(
        audit_log.write(bad),
        audit_log.write(lambda: b"second\n"),
        return_exceptions=True,
    )
    assert [type(each) for each in written] == [ZeroDivisionError, type(None)]
    assert (tmp_path / "audit").read_bytes() == b"second\n"


@pytest.mark.slow
async def test_the_queued_line_of_an_interrupted_write_has_its_answer(
    tmp_path: Path, pipe: Pipe
) -> None:
    audit_log = AuditLog(str(pipe.path))
    async with a_fleet(tmp_path, audit_log=audit_log) as fleet:
        check, full = audit_log.check, []

        async def then_full() -> None:
            await check()
            audit_log.append(lambda: FULL)
            full.append(True)

        audit_log.check = then_full  # type: ignore[method-assign]
        asked = asyncio.create_task(fleet.ask("PUT", f"{MINE}/mine/scale", body=SCALE))

        async def waits() -> bool:
            return len(audit_log._unwritten) == 1 + len(full)

        await eventually(waits, bool, what="the line of the request")
        runner = fleet.client.server.runner
        assert runner
        runner._shutdown_timeout = 0.01
        await fleet.client.server.close()
        await asyncio.gather(asked, return_exceptions=True)
        await eventually(
            pipe.read,
            lambda taken: taken.count(b"\n") == 2,
            what="the line of the request",
        )
    line = json.loads(pipe.taken.splitlines()[1])
    assert (line["verb"], line["code"], line["outcome"], line["changes"][0]["new"]) == (
        "update",
        200,
        "Success",
        5,
    )


# Unknown callers


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path, audit_log=AuditLog(str(tmp_path / "audit"))) as fleet:
        yield fleet


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit").read_text().splitlines()]


@pytest.mark.slow
async def test_unknown_callers_get_a_few_lines_per_second_and_one_with_the_count(
    fleet: Fleet, tmp_path: Path
) -> None:
    asked = 60
    headers = [
        answer[2]
        for answer in await asyncio.gather(
            *(fleet.answer("POST", MINE, user="", body=b"{}") for _ in range(asked))
        )
    ]
    assert (await fleet.ask("PUT", f"{MINE}/mine/scale", body=SCALE))[0] == 200

    async def told() -> int:
        return sum(line.get("omitted", line["user"] == "") for line in lines(tmp_path))

    await eventually(told, lambda count: count == asked, what="the line of the others")
    found = lines(tmp_path)
    own = [line["id"] for line in found if line["outcome"] == "Unauthorized"]
    (user,) = [line for line in found if line["user"]]
    assert (user["user"], user["code"]) == ("ann", 200)
    assert len(own) < asked
    assert sorted(own) == sorted(each[HEADER] for each in headers if HEADER in each)
    counted = [line for line in found if line["outcome"] == "Omitted"]
    assert all(
        (line["code"], line["user"], line["path"]) == (0, "", "")
        and line["omitted"] > 0
        for line in counted
    )


async def test_unknown_callers_get_ten_lines_per_second(
    tmp_path: Path,
) -> None:
    now = [100.0]
    audit_log = AuditLog(str(tmp_path / "audit"))
    callers = UnknownCallers(audit_log, lambda: now[0])
    assert [callers.has_line() for _ in range(25)] == [True] * LINES_PER_SECOND + [
        False
    ] * 15
    now[0] += 1
    assert callers.has_line()
    await audit_log.end()
    assert [line["omitted"] for line in lines(tmp_path)] == [15]


async def test_the_count_of_omitted_requests_is_logged_at_shutdown(
    fleet: Fleet, tmp_path: Path
) -> None:
    await asyncio.gather(
        *(fleet.ask("POST", MINE, user="", body=b"{}") for _ in range(40))
    )
    await fleet.client.close()
    assert sum(line.get("omitted", 1) for line in lines(tmp_path)) == 40


@pytest.mark.parametrize(
    "text",
    ["x" * 2000, SMILE * 2000, "\x00" * 2000, "é" * 2000, "\ud800" * 2000, '"' * 2000],
)
def test_a_text_is_truncated_by_its_size_in_the_file(text: str) -> None:
    cut = fitting(text)
    assert text.startswith(cut)
    assert TEXT_BYTES_MAX - 12 < len(json.dumps(cut)) - 2 <= TEXT_BYTES_MAX
    assert fitting(text[:40]) == text[:40]


def test_the_size_of_a_line_is_bounded() -> None:
    much = SMILE * 2000
    event = AuditEvent(
        "i" * 36, much, much, much, much, (much,) * 100, much, much, much, much, much
    )
    spec = {f"{n}{much}": "x" * 250 for n in range(200)}
    before = {"metadata": {"resourceVersion": "1"}, "spec": spec}
    after = {
        "metadata": {"resourceVersion": "2"},
        "spec": dict.fromkeys(spec, "y" * 250),
    }
    event.changes[much] = [Change("r" * 40, before, after)]
    line = event.lines(200, "Success")
    assert LINE_BYTES_MAX / 2 < len(line) <= LINE_BYTES_MAX
    told = json.loads(line)
    assert (told["changesOmitted"], len(told["groups"])) == (136, 64)
    texts = [
        *told["groups"],
        *(
            told[field]
            for field in (
                "user",
                "address",
                "method",
                "path",
                "verb",
                "group",
                "resource",
                "namespace",
                "name",
            )
        ),
    ]
    assert max(len(json.dumps(text)) - 2 for text in texts) <= TEXT_BYTES_MAX


def test_only_the_last_rejected_attempt_and_applied_changes_have_lines() -> None:
    event, tree = (
        AuditEvent("i", "PATCH", "/"),
        {"metadata": {"resourceVersion": "1"}, "spec": {}},
    )
    event.sends("mine", "refused", tree)
    event.sends("mine", "carried-out", tree).after = tree
    event.sends("mine", "refused-too", tree)
    event.sends("mine", "last", tree)
    assert [
        json.loads(line)["requestId"]
        for line in event.lines(409, "Conflict").splitlines()
    ] == ["carried-out", "last"]


async def test_a_line_of_an_unknown_caller_is_small(
    fleet: Fleet, tmp_path: Path
) -> None:
    await fleet.ask("PUT", "/" + "%F0%9F%98%80" * 600, user="", body=b"")
    assert 0 < (tmp_path / "audit").stat().st_size < 4 * TEXT_BYTES_MAX
