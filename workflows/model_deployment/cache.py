"""How a ModelDeployment follows its cache: it registers once, and the cache reports where it may be staged and how far it is."""

from collections.abc import Collection
from typing import Any

from api_types import names
from api_types.messages.caches import CacheChanged, CacheUse
from workflows.entity.context import EntityContext
from workflows.entity.registering.cache_user import CacheRegistration, wait_for_first_report
from workflows.model_deployment.state import DeploymentState


def cache_name(state: DeploymentState) -> str:
    """Name the cache that the template references; empty if it references none."""
    template = ((state.spec or {}).get("template") or {}).get("spec") or {}
    name: str = (template.get("modelCacheRef") or {}).get("name", "")
    return name


def cache_view(name: str, report: CacheChanged | None) -> dict[str, Any]:
    """Give a cache that exists as placement reads it: `Unresolved` until it has reported."""
    if report is None or report.cache != name:
        return {"name": name, "state": "Unresolved"}
    return {
        "name": name,
        "state": "Present",
        "manifest": {
            "metadata": {"name": name, **({"deletionTimestamp": "set"} if report.deleting else {})},
            "spec": {"clusterSelector": {"matchLabels": report.match_labels}},
            "status": {"clusters": [{"name": cluster, "phase": phase} for cluster, phase in sorted(report.phases.items())]},
        },
    }


class DeploymentCache:
    """Registers at the cache and stores what it reports."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self._registration = CacheRegistration(context)

    def record_change(self, message: CacheChanged) -> None:
        """Store what is new about the cache; one that was created or deleted has to be registered at again."""
        state, known = self._context.state, self._context.state.cache
        if message.cache != cache_name(state):
            return
        if not message.uid or not message.present:
            state.cache_registered = ""
            state.cache = known if message.present else None
            self._registration.stop_waiting()
        elif known is None or known.uid != message.uid or message.sequence >= known.sequence:
            state.cache = message
        self._context.requeue()

    async def follow(self) -> dict[str, Any]:
        """Register, and give the cache as placement reads it: empty if none is referenced, `Absent` if there is none of that name.

        The scheduler writes the conditions that follow from it: a condition with two writers would never settle.
        """
        state, name = self._context.state, cache_name(self._context.state)
        if state.cache and state.cache.cache != name:
            state.cache = None
        if state.cache_registered != name:
            state.cache_registered = name if name and await self._register(name) else ""
            if state.cache_registered and state.cache is None:
                await wait_for_first_report(name, lambda: state.cache is not None or state.deleting)
        if not name:
            self._registration.stop_waiting()
            return {}
        if not state.cache_registered:
            return {"name": name, "state": "Absent"}
        return cache_view(name, state.cache)

    async def _register(self, name: str) -> bool:
        context = self._context
        message = CacheUse(
            workflow_id=names.workflow_id(context.kind, context.namespace, context.name),
            uid=context.state.uid,
            sequence=context.next_registration(),
        )
        return await self._registration.register(name, message)

    def registered_at(self) -> list[str]:
        """Name the workflow of the cache that knows that this deployment uses it, if there is one."""
        return self._registration.workflow_ids(self._context.state.cache_registered)

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register again if the cache is one of these workflows."""
        if self._registration.lost(self._context.state.cache_registered, workflow_ids):
            self._context.state.cache_registered = ""

    def retry(self) -> None:
        """Look for a missing cache in the next pass."""
        self._registration.stop_waiting()
