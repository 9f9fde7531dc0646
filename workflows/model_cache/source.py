"""What exactly a ModelCache stages: the revision that its reference meant when it was asked, and the credential that opens it.

A revision is found out once, so that a cluster that comes a day later gets the same commit. Where nobody can say, the reference is used as
it is written. A credential that is missing is waited for by an activity, not by polling: waiting costs no history.
"""

import asyncio
import hashlib
import json
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities
from activities.render.cache.artifact import Artefact, artefact_key, claim_name, read_artefact
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import InvalidSpec
from api_types import labels, queues
from api_types.errors import error_message, error_type
from api_types.messages.caches import ApplyCache, AwaitCredential, ResolveRevision
from api_types.messages.cluster_work import Connection
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE
from workflows.model_cache.plan import AUTH_REFUSED, Wanted, reset_backoff
from workflows.model_cache.staging import CacheStaging
from workflows.model_cache.state import ClusterStaging, Copy, Pin
from workflows.model_cache.status import pin_verdict


class CacheSource(CacheStaging):
    """The part of a cache that deals with where its weights come from."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.awaiting: asyncio.Task[None] | None = None

    def match_labels(self) -> dict[str, str]:
        """Give the labels that a cluster must have."""
        return dict(((self.state.spec or {}).get("clusterSelector") or {}).get("matchLabels") or {})

    def as_input(self, revision: str = "") -> CacheInput:
        """Give this cache as rendering reads it."""
        return CacheInput(self.namespace, self.name, self.state.uid, self.state.generation, "", self.state.spec or {}, revision=revision)

    def artefact(self) -> Artefact:
        """Give what is staged, its revision as written."""
        return read_artefact(self.as_input())

    def can_be_read(self) -> bool:
        """Tell whether the spec names an artefact; admission knows less of image references than rendering does."""
        try:
            self.artefact()
        except InvalidSpec as error:
            self.condition("SpecAccepted", FALSE, "InvalidInput", str(error))
            self.condition("Ready", FALSE, "InvalidInput", str(error))
            return False
        return True

    def wanted(self) -> Wanted | None:
        """Give what shall be staged, and where; None before the revision was asked for."""
        if self.state.spec is None or self.state.pin is None:
            return None
        pinned = self.as_input(self.state.pin.revision)
        return Wanted(
            artefact_key=artefact_key(pinned),
            claim=claim_name(pinned),
            revision=self.state.pin.revision or self.artefact().revision,
            generation=self.state.generation,
            match_labels=self.match_labels(),
            deleting=bool(self.state.deleted),
        )

    def order(self, place: ClusterStaging, copy: Copy, connection: Connection, *, hydrate: bool) -> ApplyCache:
        """Say all that is needed to stage an artefact on a cluster."""
        return ApplyCache(
            connection=connection,
            cluster=place.site.name,
            namespace=self.namespace,
            name=self.name,
            uid=self.state.uid,
            generation=self.state.generation,
            spec=self.state.spec or {},
            revision=self.state.pin.revision if self.state.pin else "",
            storage_class_name=place.site.storage_class_name,
            scheduler_type=place.site.scheduler_type,
            hydrate=hydrate,
            spent_job=copy.spent,
        )

    # --- the revision -------------------------------------------------------------------------------------------------------------

    async def pin(self) -> None:
        """Find out once which revision is meant; a new value of the refresh annotation asks anew."""
        artefact, refresh = self.artefact(), self.state.annotations.get(labels.REFRESH, "")
        reference = hashlib.sha256(json.dumps([artefact.source, artefact.origin, artefact.revision]).encode()).hexdigest()[:16]
        old = self.state.pin
        if old and (old.reference, old.refresh) == (reference, refresh):
            return
        kept = old.revision if old and old.reference == reference else ""
        try:
            answer = await self.unless(
                lambda: bool(self.state.deleted),
                workflow.execute_activity_method(
                    RevisionActivities.resolve_revision,
                    ResolveRevision(namespace=self.namespace, name=self.name, spec=self.state.spec or {}),
                    **activity_options.remote(activity_options.EXTERNAL_CALL, f"find the revision of {artefact.origin}", queues.CLUSTERS),
                ),
            )
        except ActivityError as error:
            self.state.pin = Pin(reference=reference, refresh=refresh, revision=kept, problem=error_message(error))
            self.event("Warning", "Unresolved", self.state.pin.problem)
        else:
            if answer is None:
                return
            self.state.pin = Pin(reference=reference, refresh=refresh, revision=answer.revision)
            if kept and kept != answer.revision:
                self.event("Normal", "Refreshed", f"{artefact.origin} moved from {kept} to {answer.revision}")
        self.condition("RevisionPinned", *pin_verdict(self.state.pin))
        self.publish()

    # --- the credential -----------------------------------------------------------------------------------------------------------

    def await_credential(self) -> None:
        """Have somebody wait for the credential while a cluster waits for it."""
        if self.awaiting and self.awaiting.done():
            self.awaiting = None
        artefact = self.artefact()
        waits = any(
            copy.missing or (copy.failed and copy.exit_code == AUTH_REFUSED)
            for place in self.state.places.values()
            for copy in place.copies[:1]
        )
        if waits and artefact.credential and self.awaiting is None:
            order = AwaitCredential(
                namespace=self.namespace, name=artefact.credential, key=artefact.credential_key, version=self.state.credential
            )
            self.awaiting = asyncio.create_task(self._await_credential(order))
        elif not waits and self.awaiting:
            self.awaiting.cancel()

    async def _await_credential(self, order: AwaitCredential) -> None:
        try:
            version = await workflow.execute_activity_method(
                CacheActivities.await_credential,
                order,
                **activity_options.remote(
                    activity_options.UNTIL_GONE, f"wait for a change of Secret {order.namespace}/{order.name}", queues.CLUSTERS
                ),
            )
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self.event("Warning", error_type(error), error_message(error))
                self.requeue_after(backoff.permanent(0))
            return
        self.state.credential = version
        for place in self.state.places.values():
            for copy in place.copies[:1]:
                copy.missing = ""
                if copy.failed and copy.exit_code == AUTH_REFUSED:
                    reset_backoff(copy)
        pin = self.state.pin
        if pin and not pin.revision and not any(copy.attempts for place in self.state.places.values() for copy in place.copies):
            # Nothing was downloaded under the revision as written: with the credential it may be found out after all.
            self.state.pin = None
        self.touch()

    async def stop_background_tasks(self) -> None:
        """End what runs in the background."""
        if self.awaiting:
            self.awaiting.cancel()
            await asyncio.gather(self.awaiting, return_exceptions=True)
            self.awaiting = None
        await super().stop_background_tasks()
