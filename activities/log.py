"""The log of a worker: one stream of structured lines on standard error.

The Temporal SDK logs every attempt of an activity that ends with an exception, with a traceback. Most of these exceptions are no bugs: the
message of an error of `api_types.errors` says all that is known, and a cancelled activity or the shutdown of a worker is no failure. So the
lines of the SDK are altered here, and a traceback in the log is a bug. Only the worker imports this module; not here: what an activity logs
itself.
"""

import asyncio
import logging
import sys
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import CancelledError

from api_types.errors import ModelplaneError, TransientError
from api_types.settings import LogSettings


class ActivityFailures(logging.Filter):
    """Shortens what the SDK logs of an activity that failed: one line for our errors, debug level for cancellation and shutdown."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Alter the record in place; every record passes, and the handler drops those below its level."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, (asyncio.CancelledError, CancelledError)):
            _set_level(record, logging.DEBUG)
            _shorten(record, "activity cancelled")
        elif isinstance(error, ModelplaneError):
            # What a shutdown interrupts is tried again by another worker, which logs it if it fails there too.
            if isinstance(error, TransientError) and activity.in_activity() and activity.is_worker_shutdown():
                _set_level(record, logging.DEBUG)
            _shorten(record, "activity failed", error_type=error.type, error=error.message)
        return True


def _set_level(record: logging.LogRecord, level: int) -> None:
    record.levelno, record.levelname = level, logging.getLevelName(level)


def _shorten(record: logging.LogRecord, event: str, **fields: Any) -> None:
    """Replace the SDK's message, traceback and details by `event`, these fields, and which attempt of which activity it was."""
    record.msg, record.args = event, ()
    record.exc_info = record.exc_text = None
    details = record.__dict__.pop("temporal_activity", {})
    record.__dict__.pop("__temporal_error_identifier", None)
    record.__dict__.update(fields, **{key: details[key] for key in ("workflow_id", "activity_type", "attempt") if key in details})


def configure_logging(settings: LogSettings) -> None:
    """Send all logs through one structured stream on standard error, with colours only on a terminal."""
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
    # A logger compares levels before its filters run, so the handler compares the level that a filter set.
    handler.setLevel(level)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _renderer(settings)]
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    failures = activity.logger.base_logger
    failures.filters = [each for each in failures.filters if not isinstance(each, ActivityFailures)]
    failures.addFilter(ActivityFailures())
    # The record has the same details as a field.
    activity.logger.activity_info_on_message = False


def _renderer(settings: LogSettings) -> Any:
    if settings.format == "json":
        return structlog.processors.JSONRenderer()
    # Tracebacks are formatted before, for both formats.
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _drop_color_message(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Drop the copy of a message with escape codes that uvicorn adds."""
    event.pop("color_message", None)
    return event
