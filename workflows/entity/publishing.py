"""What visibility and the Temporal UI show of an entity: search attributes, and current details in Markdown."""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow

from activities.messaging.search_attributes import KIND, NAME, NAMESPACE, PHASE, PUBLISHED_MEMO, READY, VERSION
from workflows.entity.conditions import UNKNOWN, condition_of
from workflows.entity.context import EntityContext, microseconds
from workflows.entity.state import EntityState

_EVENTS_SHOWN = 8
VERSION_PATCH = "versions-in-visibility"


class Publisher:
    """Publishes phase, readiness and version when they changed, and the details every time: these are no history event."""

    def __init__(self, context: EntityContext[EntityState]) -> None:
        self._context = context

    def publish(self, phase: str, details: Sequence[str]) -> None:
        """Show the object as it is now."""
        ready = condition_of(self._context.state.conditions, "Ready")
        shown = [phase, ready.status if ready else UNKNOWN]
        state = self._context.state
        updates = list[Any]()
        if shown != (state.published or workflow.memo_value(PUBLISHED_MEMO, [])):
            updates += [PHASE.value_set(shown[0]), READY.value_set(shown[1]), *self._identity()]
            state.published = shown
        if state.published_version != state.resource_version and workflow.patched(VERSION_PATCH):
            # Whoever follows changes looks back for seconds. What was changed before a long step is news to them only now.
            state.resource_version = max(state.resource_version, microseconds(self._context.moment()))
            updates.append(VERSION.value_set(state.resource_version))
            state.published_version = state.resource_version
        if updates:
            workflow.upsert_search_attributes(updates)
        workflow.set_current_details("\n".join(self._lines(phase, details)))

    def _identity(self) -> list[Any]:
        """Give the search attributes that never change, if they may be missing: a plain Temporal client starts entities without them."""
        if workflow.memo_value(PUBLISHED_MEMO, None):
            return []
        scope = [NAMESPACE.value_set(self._context.namespace)] if self._context.namespace else []
        return [KIND.value_set(self._context.kind), NAME.value_set(self._context.name), *scope]

    def _lines(self, phase: str, details: Sequence[str]) -> list[str]:
        state = self._context.state
        return [
            f"**{self._context.title}** — {phase}",
            "",
            "| Condition | Status | Reason | Message |",
            "|---|---|---|---|",
            *(f"| {c.type} | {c.status} | {c.reason} | {(c.message or '').replace('|', '/')} |" for c in state.conditions),
            "",
            *details,
            *(f"- {event.last} {event.reason}: {event.message}" for event in reversed(state.events[-_EVENTS_SHOWN:])),
        ]
