"""How a ModelReplica follows its caches.

It registers at the caches of its spec, receives the volume claims to mount, and reports
the claims that its pods may mount, so that no cache deletes a volume in use. A claim
stays until another claim is reported, so the loss of a cache stops no pod.
"""

from api_types import names
from api_types.messages.caches import CacheChanged, CacheReport, CacheUse
from api_types.resources.parts.referenced_caches import adapter_caches
from workflows.entity.context import EntityContext
from workflows.entity.registering.cache_user import (
    MODEL,
    FollowedCaches,
    wait_for_first_report,
)
from workflows.model_replica.decisions.cache import cache_name, mounted_claims
from workflows.model_replica.state import ModelReplicaState, ReplicaAdapterCache


class ReplicaCache:
    """Registers at the caches of model and adapters, and reports the claims of its pods."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self.followed: FollowedCaches[ModelReplicaState | ReplicaAdapterCache] = (
            FollowedCaches(
                context,
                lambda: cache_name(context.state),
                lambda: context.state.adapters,
                self._state_of,
            )
        )

    def record_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or the reason why there is none yet."""
        key = self.followed.key_of(message.cache)
        if key is None:
            return
        followed = self._state_of(key)
        known = followed.cache
        if (
            known is None
            or known.uid != message.uid
            or message.sequence >= known.sequence
        ):
            followed.cache = message
            if message.claim:
                known_mount = (
                    followed.cache_mount
                    if message.claim == followed.cache_claim
                    else None
                )
                kept = known_mount if known_mount and known_mount.node_local else None
                followed.cache_claim, followed.cache_mount = (
                    message.claim,
                    message.mount or kept,
                )
            followed.cache_gib = message.size_gib or followed.cache_gib
            self._context.mark_changed()

    def record_change(self, message: CacheChanged) -> None:
        """Register again at a cache that was created or deleted."""
        key = self.followed.key_of(message.cache)
        if key is not None:
            self._state_of(key).cache_registered = ""
            self.followed.registration(key).stop_waiting()
            self._context.requeue()

    async def follow(self) -> None:
        """Register at the caches, and report changes of the claims that pods may mount."""
        state = self._context.state
        await self._follow(MODEL, cache_name(state))
        wanted = adapter_caches(state.spec or {})
        for name in sorted({*state.adapters, *wanted}):
            await self._follow(name, name if name in wanted else "")
            if name not in wanted:
                state.adapters.pop(name, None)
                self.followed.drop(name)

    async def unregister(self) -> None:
        """Report that no pod of this replica mounts a claim any more."""
        for key in self.followed.all_keys():
            await self._unregister(key)

    async def _follow(self, key: str, name: str) -> None:
        state, followed = self._context.state, self._state_of(key)
        known = followed.cache_registered
        if known and known != name:
            await self._unregister(key)
            (
                followed.cache,
                followed.cache_claim,
                followed.cache_mount,
                followed.cache_gib,
            ) = None, "", None, 0
        claims = mounted_claims(state, key)
        registration = self.followed.registration(key)
        if not name:
            registration.stop_waiting()
        if not name or (known == name and followed.cache_mounted == claims):
            return
        # Messages that arrive during this call may make the report outdated.
        followed.cache_registered, followed.cache_mounted = name, claims
        if not await registration.register(
            name, self._use(claims, report_missing=followed.cache is None)
        ):
            followed.cache_registered, followed.cache_mounted = "", claims
            return
        if followed.cache is None:
            await wait_for_first_report(
                name, lambda: followed.cache is not None or state.deleting
            )

    async def _unregister(self, key: str) -> None:
        followed, registration = self._state_of(key), self.followed.registration(key)
        registration.stop_waiting()
        if name := followed.cache_registered:
            followed.cache_registered, followed.cache_mounted = "", []
            await registration.unregister(name, self._use([], used=False))

    def _state_of(self, key: str) -> ModelReplicaState | ReplicaAdapterCache:
        state = self._context.state
        return state.adapters.setdefault(key, ReplicaAdapterCache()) if key else state

    def _use(
        self, claims: list[str], *, used: bool = True, report_missing: bool = False
    ) -> CacheUse:
        state = self._context.state
        return CacheUse(
            workflow_id=names.workflow_id(
                "ModelReplica", state.start.namespace, state.start.name
            ),
            uid=state.uid,
            sequence=self._context.next_registration(),
            cluster=state.start.cluster,
            deployment=state.start.deployment,
            claims=claims,
            used=used,
            report_missing=report_missing,
        )
