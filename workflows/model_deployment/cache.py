"""How a ModelDeployment follows its caches.

It registers once at each cache, and the cache reports the clusters it may use and the
state of its copies.
"""

from typing import Any

from api_types import names
from api_types.messages.caches import CacheChanged, CacheUse
from api_types.resources.parts.referenced_caches import adapter_caches, model_cache
from scheduler import combined_cache
from workflows.entity.context import EntityContext
from workflows.entity.registering.cache_user import (
    MODEL,
    CacheRegistration,
    FollowedCaches,
    wait_for_first_report,
)
from workflows.model_deployment.state import DeploymentAdapterCache, DeploymentState


def cache_name(state: DeploymentState) -> str:
    """Return the name of the cache in the template, or an empty string."""
    return model_cache(_template(state))


def cache_view(name: str, report: CacheChanged | None) -> dict[str, Any]:
    """Return an existing cache as placement reads it, `Unresolved` until its report."""
    if report is None or report.cache != name:
        return {"name": name, "state": "Unresolved"}
    return {
        "name": name,
        "state": "Present",
        "manifest": {
            "metadata": {
                "name": name,
                **({"deletionTimestamp": "set"} if report.deleting else {}),
            },
            "spec": {"clusterSelector": {"matchLabels": report.match_labels}},
            "status": {
                "clusters": [
                    {"name": cluster, "phase": phase}
                    for cluster, phase in sorted(report.phases.items())
                ]
            },
        },
    }


class DeploymentCache:
    """Registers at the caches of the model and of its adapters, and stores their reports."""

    def __init__(self, context: EntityContext[DeploymentState]) -> None:
        self._context = context
        self.followed: FollowedCaches[DeploymentState | DeploymentAdapterCache] = (
            FollowedCaches(
                context,
                lambda: cache_name(context.state),
                lambda: context.state.adapters,
                self._state_of,
            )
        )

    def record_change(self, message: CacheChanged) -> None:
        """Store a report. Register again at a cache that was created or deleted."""
        key = self.followed.key_of(message.cache)
        if key is None:
            return
        followed = self._state_of(key)
        known = followed.cache
        if not message.uid or not message.present:
            followed.cache_registered = ""
            followed.cache = known if message.present else None
            self.followed.registration(key).stop_waiting()
        elif (
            known is None
            or known.uid != message.uid
            or message.sequence >= known.sequence
        ):
            followed.cache = message
        self._context.requeue()

    async def follow(self) -> dict[str, Any]:
        """Register, and return all caches as one, in the form that placement reads.

        The result is empty if the template references no cache, and `Absent` if a cache
        does not exist. Only the scheduler writes the conditions of caches, because two
        writers of one condition would overwrite each other continuously.
        """
        state = self._context.state
        model = await self._follow(MODEL, cache_name(state))
        wanted = adapter_caches(_template(state))
        for name in sorted(state.adapters.keys() - set(wanted)):
            del state.adapters[name]
            self.followed.drop(name)
        return combined_cache(
            [model, *[await self._follow(name, name) for name in wanted]]
        )

    async def _follow(self, key: str, name: str) -> dict[str, Any]:
        state, followed, registration = (
            self._context.state,
            self._state_of(key),
            self.followed.registration(key),
        )
        if followed.cache and followed.cache.cache != name:
            followed.cache = None
        if followed.cache_registered != name:
            report_missing = followed.cache is None
            is_registered = bool(name) and await self._register(
                registration, name, report_missing=report_missing
            )
            followed.cache_registered = name if is_registered else ""
            if followed.cache_registered and followed.cache is None:
                await wait_for_first_report(
                    name, lambda: followed.cache is not None or state.deleting
                )
        if not name:
            registration.stop_waiting()
            return {}
        if not followed.cache_registered:
            return {"name": name, "state": "Absent"}
        return cache_view(name, followed.cache)

    async def _register(
        self, registration: CacheRegistration, name: str, *, report_missing: bool
    ) -> bool:
        context = self._context
        message = CacheUse(
            workflow_id=names.workflow_id(
                context.kind, context.namespace, context.name
            ),
            uid=context.state.uid,
            sequence=context.next_registration(),
            report_missing=report_missing,
        )
        return await registration.register(name, message)

    def _state_of(self, key: str) -> DeploymentState | DeploymentAdapterCache:
        state = self._context.state
        return (
            state.adapters.setdefault(key, DeploymentAdapterCache()) if key else state
        )


def _template(state: DeploymentState) -> dict[str, Any]:
    return ((state.spec or {}).get("template") or {}).get("spec") or {}
