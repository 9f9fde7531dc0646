"""How a ModelReplica follows its cache.

It registers at the cache that its spec names, receives the volume claim to mount, and reports what its pods may mount, so that no volume is
deleted while a pod needs it. A claim is kept until another one is reported: a cache that is lost stops no pod.
"""

from collections.abc import Collection

from api_types import names
from api_types.messages.caches import CacheChanged, CacheReport, CacheUse
from workflows.entity.context import EntityContext
from workflows.entity.registering.cache_user import CacheRegistration, wait_for_first_report
from workflows.model_replica.decisions.cache import cache_name, mounted_claims
from workflows.model_replica.state import ModelReplicaState


class ReplicaCache:
    """Registers at the cache, and reports what the pods may mount."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self._registration = CacheRegistration(context)

    def record_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or why there is none yet."""
        state, known = self._context.state, self._context.state.cache
        if message.cache != cache_name(state):
            return
        if known is None or known.uid != message.uid or message.sequence >= known.sequence:
            state.cache = message
            state.cache_claim = message.claim or state.cache_claim
            state.cache_gib = message.size_gib or state.cache_gib
            self._context.mark_changed()

    def record_change(self, message: CacheChanged) -> None:
        """A cache of this name was created or deleted: register anew."""
        if message.cache == cache_name(self._context.state):
            self._context.state.cache_registered = ""
            self._registration.stop_waiting()
            self._context.requeue()

    async def follow(self) -> None:
        """Register at the cache, and report what the pods may mount whenever that changes."""
        state = self._context.state
        name, known = cache_name(state), state.cache_registered
        if known and known != name:
            await self.unregister()
            state.cache, state.cache_claim, state.cache_gib = None, "", 0
        claims = mounted_claims(state)
        if not name:
            self._registration.stop_waiting()
        if not name or (known == name and state.cache_mounted == claims):
            return
        # What arrives while this is sent may make it void again.
        state.cache_registered, state.cache_mounted = name, claims
        if not await self._registration.register(name, self._use(claims)):
            state.cache_registered, state.cache_mounted = "", claims
            return
        if state.cache is None:
            await wait_for_first_report(name, lambda: state.cache is not None or state.deleting)

    async def unregister(self) -> None:
        """Report that no pod of this replica mounts the cache any more."""
        state = self._context.state
        self._registration.stop_waiting()
        if name := state.cache_registered:
            state.cache_registered, state.cache_mounted = "", []
            await self._registration.unregister(name, self._use([], used=False))

    def registered_at(self) -> list[str]:
        """Name the workflow of the cache that knows that this replica uses it, if there is one."""
        return self._registration.workflow_ids(self._context.state.cache_registered)

    def register_again(self, workflow_ids: Collection[str]) -> None:
        """Register again if the cache is one of these workflows."""
        if self._registration.lost(self._context.state.cache_registered, workflow_ids):
            self._context.state.cache_registered = ""

    def retry(self) -> None:
        """Look for a missing cache in the next pass."""
        self._registration.stop_waiting()

    def _use(self, claims: list[str], *, used: bool = True) -> CacheUse:
        state = self._context.state
        return CacheUse(
            workflow_id=names.workflow_id("ModelReplica", state.start.namespace, state.start.name),
            uid=state.uid,
            sequence=self._context.next_registration(),
            cluster=state.start.cluster,
            deployment=state.start.deployment,
            claims=claims,
            used=used,
        )
