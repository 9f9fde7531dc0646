"""How a ModelReplica follows its cache.

It registers with the cache that its spec names, is told which volume claim to mount, and tells back what its pods may mount, so that no
volume goes while a pod needs it. A claim that was told once is kept until another one is: a cache that is lost stops no pod.
"""

import contextlib
from datetime import timedelta
from typing import Any

from temporalio import workflow

from api_types import names
from api_types.messages.caches import CacheChanged, CacheReport, CacheUse
from workflows.entity import backoff
from workflows.entity.conditions import is_true
from workflows.entity.entity import Entity
from workflows.model_replica.state import ReplicaCarried

# A cache that does not exist announces itself when it comes; this is the net below.
LOOK_FOR_CACHE = backoff.transient(4)

# A cache that is staged answers within this time, and then a replica is rendered once instead of twice.
ANSWER_PATIENCE = timedelta(seconds=2)


class ReplicaCaches(Entity[ReplicaCarried]):
    """The part of a replica that deals with its cache."""

    @workflow.signal
    def cache_report(self, order: Any) -> None:
        """Note which claim to mount, or why there is none yet."""
        message = self.read(CacheReport, order)
        known = self.state.cache
        if message is None or message.cache != self.cache_name():
            return
        if known is None or known.uid != message.uid or message.sequence >= known.sequence:
            self.state.cache = message
            self.state.cache_claim = message.claim or self.state.cache_claim
            self.touch()

    @workflow.signal
    def cache_changed(self, order: Any) -> None:
        """Note that a cache of this name was born, or is gone: it has to be told of us anew."""
        message = self.read(CacheChanged, order)
        if message and message.cache == self.cache_name():
            self.state.cache_registered = ""
            self.requeue()

    def cache_name(self) -> str:
        """Name the cache that the spec references; empty if it references none."""
        name: str = ((self.state.spec or {}).get("modelCacheRef") or {}).get("name", "")
        return name

    async def follow_cache(self) -> None:
        """Register with the cache, and tell it what the pods may mount whenever that changes."""
        name, known = self.cache_name(), self.state.cache_registered
        if known and known != name:
            await self.let_go_of_cache()
            self.state.cache, self.state.cache_claim = None, ""
        claims = self.mounted_claims()
        if not name or (known == name and self.state.cache_mounted == claims):
            return
        if not await self._tell_cache(name, claims):
            self.requeue_after(LOOK_FOR_CACHE)
            return
        self.state.cache_registered, self.state.cache_mounted = name, claims
        if self.state.cache is None:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self.state.cache is not None or bool(self.state.deleted),
                    timeout=ANSWER_PATIENCE,
                    timeout_summary=f"ModelCache {name} answers",
                )

    async def let_go_of_cache(self) -> None:
        """Tell the cache that no pod of ours mounts it any more."""
        if self.state.cache_registered:
            await self._tell_cache(self.state.cache_registered, [], used=False)
            self.state.cache_registered, self.state.cache_mounted = "", []

    def mounted_claims(self) -> list[str]:
        """Name the claims that pods may mount, the newest last: while a change is rolled out, those before it too."""
        applied = self.state.applied_inputs[0] if self.state.applied_inputs else ""
        older = [claim for claim in self.state.cache_mounted if claim != applied]
        if is_true(self.state.conditions, "Ready"):
            older = []
        return [*older, applied] if applied else older

    def waits_for_cache(self) -> str:
        """Say which cache keeps the engines from starting, and how far it is."""
        report, cluster = self.state.cache, self.state.birth.cluster
        title = f"ModelCache {self.namespace}/{self.cache_name()}"
        if report is None:
            return f"{title} does not exist, or has not answered yet; engines on {cluster} wait for it"
        detail = f": {report.message}" if report.message else ""
        return f"{title} is {report.phase or 'not staged'} on {cluster}{detail}"

    def cache_status(self) -> dict[str, Any]:
        """Show which weights are mounted; nothing without a cache."""
        if not self.cache_name():
            return {}
        report = self.state.cache
        shown = {"claimName": self.state.cache_claim, "artefactKey": report.artefact_key, "phase": report.phase} if report else {}
        return {"cache": {field: value for field, value in shown.items() if value}}

    async def _tell_cache(self, name: str, claims: list[str], *, used: bool = True) -> bool:
        message = CacheUse(
            workflow_id=names.workflow_id("ModelReplica", self.namespace, self.name),
            uid=self.state.uid,
            cluster=self.state.birth.cluster,
            deployment=self.state.birth.deployment,
            claims=claims,
            used=used,
        )
        return await self.tell(names.workflow_id("ModelCache", self.namespace, name), "cache_wanted", message)
