"""The log of a worker: one stream of structured lines on standard error.

The Temporal SDK logs every failed attempt of an activity with a traceback. Most of
these failures are not bugs: an error from `api_types.errors` has a complete message,
and a cancelled activity or a worker shutdown is not a failure. This module shortens
those log records, so a traceback in the log means a bug. Only the worker imports it.
"""

import asyncio
import logging
import sys
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import CancelledError

from api_types.errors import ModelplaneError, TransientError
from api_types.sections.programs import LogSettings


class ActivityFailures(logging.Filter):
    """Shortens the SDK's log records of failed activities.

    Errors of `api_types.errors` become one line; cancellations and shutdowns are logged
    at debug level.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place.

        Always returns True, because the handler filters by level.
        """
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (asyncio.CancelledError, CancelledError)):
            _set_level(record, logging.DEBUG)
            _shorten(record, "activity cancelled")
        elif isinstance(error, ModelplaneError):
            # Another worker retries an activity that a shutdown interrupted, and logs
            # it if it fails there too.
            if (
                isinstance(error, TransientError)
                and activity.in_activity()
                and activity.is_worker_shutdown()
            ):
                _set_level(record, logging.DEBUG)
            _shorten(
                record, "activity failed", error_type=error.type, error=error.message
            )
        return True


def _set_level(record: logging.LogRecord, level: int) -> None:
    record.levelno, record.levelname = level, logging.getLevelName(level)


def _shorten(record: logging.LogRecord, event: str, **fields: Any) -> None:
    """Replace the SDK's message and traceback by `event`, `fields` and the attempt."""
    record.msg, record.args = event, ()
    record.exc_info = record.exc_text = None
    details = record.__dict__.pop("temporal_activity", {})
    record.__dict__.pop("__temporal_error_identifier", None)
    record.__dict__.update(fields)
    for key in ("workflow_id", "activity_type", "attempt"):
        if key in details:
            record.__dict__[key] = details[key]


def configure_logging(settings: LogSettings) -> None:
    """Send all logs to one structured stream on standard error, coloured on a terminal."""
    level = getattr(logging, settings.level.upper())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _drop_color_message,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(sys.stderr)
    # A logger compares levels before its filters run. The handler compares the level
    # that a filter has set.
    handler.setLevel(level)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(settings),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    failures = activity.logger.base_logger
    failures.filters = [
        each for each in failures.filters if not isinstance(each, ActivityFailures)
    ]
    failures.addFilter(ActivityFailures())
    # The record carries the same details as a field.
    activity.logger.activity_info_on_message = False


def _renderer(settings: LogSettings) -> Any:
    if settings.format == "json":
        return structlog.processors.JSONRenderer()
    # `format_exc_info` has formatted the traceback already.
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )


def _drop_color_message(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Drop the copy of the message with terminal escape codes that uvicorn adds."""
    event.pop("color_message", None)
    return event
