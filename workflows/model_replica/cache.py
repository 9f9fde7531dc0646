"""How a ModelReplica follows its cache.

It registers at the cache that its spec names, receives the volume claim to mount, and reports what its pods may mount, so that no volume is
deleted while a pod needs it. A claim is kept until another one is reported: a cache that is lost stops no pod.
"""

from typing import Any

from api_types import names
from api_types.messages.caches import CacheChanged, CacheReport, CacheUse
from api_types.messages.delivery import entity
from api_types.messages.signals import ModelCacheSignals
from workflows.entity.cache_user import REGISTER_RETRY, wait_for_first_report
from workflows.entity.conditions import is_true
from workflows.entity.context import EntityContext
from workflows.model_replica.state import ModelReplicaState


def cache_name(state: ModelReplicaState) -> str:
    """Name the cache that the spec references; empty if it references none."""
    name: str = ((state.spec or {}).get("modelCacheRef") or {}).get("name", "")
    return name


def mounted_claims(state: ModelReplicaState) -> list[str]:
    """Name the claims that pods may mount, the newest last: while a change is rolled out, those before it too."""
    applied = state.applied_inputs.cache_claim if state.applied_inputs else ""
    older = [claim for claim in state.cache_mounted if claim != applied]
    if is_true(state.conditions, "Ready"):
        older = []
    return [*older, applied] if applied else older


def cache_problem(state: ModelReplicaState) -> str:
    """Say which cache keeps the engines from starting, and how far it is."""
    report, cluster = state.cache, state.start.cluster
    title = f"ModelCache {state.start.namespace}/{cache_name(state)}"
    if report is None:
        return f"{title} does not exist, or has not answered yet; engines on {cluster} wait for it"
    detail = f": {report.message}" if report.message else ""
    return f"{title} is {report.phase or 'not staged'} on {cluster}{detail}"


def cache_status(state: ModelReplicaState) -> dict[str, Any]:
    """Show which weights are mounted; nothing without a cache."""
    if not cache_name(state):
        return {}
    report = state.cache
    shown = {"claimName": state.cache_claim, "artefactKey": report.artifact_key, "phase": report.phase} if report else {}
    return {"cache": {field: value for field, value in shown.items() if value}}


class ReplicaCache:
    """Registers at the cache, and reports what the pods may mount."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context

    def record_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or why there is none yet."""
        state, known = self._context.state, self._context.state.cache
        if message.cache != cache_name(state):
            return
        if known is None or known.uid != message.uid or message.sequence >= known.sequence:
            state.cache = message
            state.cache_claim = message.claim or state.cache_claim
            self._context.mark_changed()

    def record_change(self, message: CacheChanged) -> None:
        """A cache of this name was created or deleted: register anew."""
        if message.cache == cache_name(self._context.state):
            self._context.state.cache_registered = ""
            self._context.requeue()

    async def follow(self) -> None:
        """Register at the cache, and report what the pods may mount whenever that changes."""
        state = self._context.state
        name, known = cache_name(state), state.cache_registered
        if known and known != name:
            await self.unregister()
            state.cache, state.cache_claim = None, ""
        claims = mounted_claims(state)
        if not name or (known == name and state.cache_mounted == claims):
            return
        if not await self._report_use(name, claims):
            self._context.requeue_after(REGISTER_RETRY)
            return
        state.cache_registered, state.cache_mounted = name, claims
        if state.cache is None:
            await wait_for_first_report(name, lambda: state.cache is not None or state.deleting)

    async def unregister(self) -> None:
        """Report that no pod of this replica mounts the cache any more."""
        state = self._context.state
        if state.cache_registered:
            await self._report_use(state.cache_registered, [], used=False)
            state.cache_registered, state.cache_mounted = "", []

    async def _report_use(self, name: str, claims: list[str], *, used: bool = True) -> bool:
        state = self._context.state
        message = CacheUse(
            workflow_id=names.workflow_id("ModelReplica", state.start.namespace, state.start.name),
            uid=state.uid,
            cluster=state.start.cluster,
            deployment=state.start.deployment,
            claims=claims,
            used=used,
        )
        return await self._context.signal(entity(ModelCacheSignals, state.start.namespace, name), ModelCacheSignals.CACHE_USED, message)
