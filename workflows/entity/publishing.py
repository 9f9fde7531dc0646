"""The search attributes and current details of an entity.

Visibility and the Temporal UI show them. The details are Markdown.
"""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow

from activities.messaging.search_attributes import (
    KIND,
    NAME,
    NAMESPACE,
    PHASE,
    PUBLISHED_MEMO,
    READY,
    VERSION,
)
from workflows.entity.conditions import UNKNOWN, condition_of
from workflows.entity.context import EntityContext, microseconds
from workflows.entity.state import EntityState

_EVENTS_SHOWN = 8


class Publisher:
    """Publishes phase, readiness and version when they change, and details always.

    Details add no event to the history.
    """

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context

    def publish(self, phase: str, details: Sequence[str]) -> None:
        ready = condition_of(self._context.state.conditions, "Ready")
        shown = [phase, ready.status if ready else UNKNOWN]
        state = self._context.state
        updates = list[Any]()
        if shown != (state.published or workflow.memo_value(PUBLISHED_MEMO, [])):
            updates += [
                PHASE.value_set(shown[0]),
                READY.value_set(shown[1]),
                *self._identity(),
            ]
            state.published = shown
        if state.published_version != state.resource_version:
            # Clients that watch versions look back only a few seconds. A change that
            # was made before a long step becomes visible only now, so its version must
            # be recent.
            state.resource_version = max(
                state.resource_version, microseconds(self._context.moment())
            )
            updates.append(VERSION.value_set(state.resource_version))
            state.published_version = state.resource_version
        if updates:
            workflow.upsert_search_attributes(updates)
        workflow.set_current_details("\n".join(self._lines(phase, details)))

    def _identity(self) -> list[Any]:
        """Return the constant search attributes, unless the start has set them.

        A plain Temporal client starts entities without them.
        """
        if workflow.memo_value(PUBLISHED_MEMO, None):
            return []
        scope = (
            [NAMESPACE.value_set(self._context.namespace)]
            if self._context.namespace
            else []
        )
        return [
            KIND.value_set(self._context.kind),
            NAME.value_set(self._context.name),
            *scope,
        ]

    def _lines(self, phase: str, details: Sequence[str]) -> list[str]:
        state = self._context.state
        lines = [
            f"**{self._context.title}** — {phase}",
            "",
            "| Condition | Status | Reason | Message |",
            "|---|---|---|---|",
        ]
        for c in state.conditions:
            message = (c.message or "").replace("|", "/")
            lines.append(f"| {c.type} | {c.status} | {c.reason} | {message} |")
        lines += ["", *details]
        for event in reversed(state.events[-_EVENTS_SHOWN:]):
            lines.append(f"- {event.last} {event.reason}: {event.message}")
        return lines
