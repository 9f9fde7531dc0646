"""The worker's log: a line for each of our errors, a traceback for a bug.

Expected errors are not logged.
"""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog
from temporalio import activity
from temporalio.exceptions import CancelledError
from temporalio.testing import ActivityEnvironment

from activities.log import configure_logging
from api_types.errors import ClusterUnreachable, CredentialsInvalid, TransientError
from api_types.sections.programs import LogSettings

ESCAPE = "\x1b"
Format = Literal["json", "console"]
FORMATS: tuple[Format, ...] = ("json", "console")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, filters = (
        root.handlers[:],
        root.level,
        activity.logger.base_logger.filters[:],
    )
    httpx_level, on_message = (
        logging.getLogger("httpx").level,
        activity.logger.activity_info_on_message,
    )
    # `basicConfig(force=True)` closes the handlers that it removes.
    root.handlers = []
    yield
    root.handlers, activity.logger.base_logger.filters = handlers, filters
    root.setLevel(level)
    logging.getLogger("httpx").setLevel(httpx_level)
    activity.logger.activity_info_on_message = on_message
    structlog.reset_defaults()


def stream(
    monkeypatch: pytest.MonkeyPatch,
    settings: LogSettings,
    terminal: io.StringIO | None = None,
) -> io.StringIO:
    written = terminal or io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(settings)
    return written


def fail(error: BaseException, *, shutdown: bool = False) -> None:
    """Log the error as the SDK does, in the context of an activity."""

    def attempt() -> None:
        try:
            raise error  # noqa: TRY301 - for its traceback
        except BaseException:  # noqa: BLE001 - as the SDK does
            activity.logger.warning(
                "Completing activity as failed",
                exc_info=True,
                extra={"__temporal_error_identifier": "ActivityFailure"},
            )

    environment = ActivityEnvironment()
    if shutdown:
        environment.worker_shutdown()
    environment.run(attempt)


def lines(written: io.StringIO) -> list[str]:
    return written.getvalue().splitlines()


@pytest.mark.parametrize("form", FORMATS)
def test_an_error_of_our_types_is_logged_in_one_line(
    form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch, LogSettings(format=form))
    fail(CredentialsInvalid("Secret acme/missing\ndoes not exist"))
    [line] = lines(written)
    assert "Traceback" not in line
    for said in (
        "warning",
        "activity failed",
        "CredentialsInvalid",
        "Secret acme/missing\\ndoes not exist",
        "workflow_id",
        "attempt",
    ):
        assert said in line


def test_the_line_of_an_error_has_the_attempt_and_no_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = stream(monkeypatch, LogSettings())
    fail(ClusterUnreachable("cluster eu: no answer"))
    line: dict[str, Any] = json.loads(written.getvalue())
    line.pop("timestamp")
    info = ActivityEnvironment.default_info()
    assert line == {
        "event": "activity failed",
        "level": "warning",
        "logger": "temporalio.activity",
        "error_type": "ClusterUnreachable",
        "error": "cluster eu: no answer",
        "workflow_id": info.workflow_id,
        "activity_type": info.activity_type,
        "attempt": info.attempt,
    }


@pytest.mark.parametrize("form", FORMATS)
def test_a_bug_has_its_traceback(form: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    written = stream(monkeypatch, LogSettings(format=form))
    fail(KeyError("spec"))
    for said in (
        "Completing activity as failed",
        "Traceback (most recent call last)",
        "KeyError: 'spec'",
        "workflow_id",
    ):
        assert said in written.getvalue()


EXPECTED = [
    ("a task that is cancelled", asyncio.CancelledError(), False),
    ("a thread that is cancelled", CancelledError("Cancelled"), False),
    (
        "a shutdown",
        TransientError("the worker shuts down; another one takes over"),
        True,
    ),
]


@pytest.mark.parametrize(
    ("error", "shutdown"),
    [case[1:] for case in EXPECTED],
    ids=[case[0] for case in EXPECTED],
)
def test_cancellation_and_shutdown_are_logged_at_debug_level_only(
    error: BaseException, *, shutdown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch, LogSettings(level="info"))
    fail(error, shutdown=shutdown)
    assert not lines(written)
    written = stream(monkeypatch, LogSettings(level="debug"))
    fail(error, shutdown=shutdown)
    [line] = lines(written)
    assert (json.loads(line)["level"], "Traceback" in line) == ("debug", False)


@pytest.mark.parametrize(
    "error",
    [CredentialsInvalid("Secret acme/missing does not exist"), KeyError("spec")],
)
def test_errors_that_are_not_retryable_are_logged_during_shutdown_too(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch, LogSettings())
    fail(error, shutdown=True)
    assert type(error).__name__ in written.getvalue()


def log_as_uvicorn_and_the_worker_do() -> None:
    coloured = f"Started server process [{ESCAPE}[36m%d{ESCAPE}[0m]"
    logging.getLogger("uvicorn.error").warning(
        "Started server process [%d]", 7, extra={"color_message": coloured}
    )
    structlog.get_logger("modelplane.worker").info("serving", queues=["modelplane"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_log_outside_a_terminal_has_no_escape_codes(
    form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = stream(monkeypatch, LogSettings(format=form))
    log_as_uvicorn_and_the_worker_do()
    fail(KeyError("spec"))
    assert "Started server process [7]" in written.getvalue()
    assert "serving" in written.getvalue()
    for unwanted in (ESCAPE, "\\u001b", "\\x1b", "color_message"):
        assert unwanted not in written.getvalue()


def test_a_terminal_has_colours_and_no_second_copy_of_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = stream(monkeypatch, LogSettings(format="console"), Terminal())
    log_as_uvicorn_and_the_worker_do()
    assert ESCAPE in written.getvalue()
    assert "color_message" not in written.getvalue()
