"""Pin the revision that a ModelCache stages.

The reference is resolved once, so a cluster that is selected later gets the same
commit. If the source does not answer, nothing is staged for some minutes. After that,
or if the source rejects the control plane, one cluster stages the unresolved reference,
and all others stage the commit of its volume.
"""

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.caches.revisions import RevisionActivities
from activities.render.cache.artifact import can_be_pin
from api_types import clock, labels
from api_types.errors import error_message
from api_types.messages.caches import ResolveRevision
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.model_cache.plan import download_started, may_tell_revision
from workflows.model_cache.spec import artifact_of, key_of, reference_of
from workflows.model_cache.state import CacheCopy, CacheState, PinnedRevision
from workflows.model_cache.status import revision_verdict


class RevisionResolver:
    """Resolves the reference of a cache's source and pins the result."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    async def pin(self) -> None:
        """Resolve the reference if that was not done yet.

        A new value of the refresh annotation causes another resolution.
        """
        artifact = artifact_of(self.context.namespace, self.context.name, self.state)
        refresh = self.state.annotations.get(labels.REFRESH, "")
        reference = reference_of(artifact)
        old = self.state.pin
        tried = None
        if old and (old.reference, old.refresh) == (reference, refresh):
            tried = old
        if tried and not self._is_due(tried):
            return
        kept = old.revision if old and old.reference == reference else ""
        try:
            answer = await self.context.run_until(
                lambda: self.state.deleting,
                workflow.execute_activity_method(
                    RevisionActivities.resolve_revision,
                    ResolveRevision(
                        namespace=self.context.namespace,
                        name=self.context.name,
                        spec=self.state.spec or {},
                    ),
                    **activity_options.on_cluster(
                        activity_options.EXTERNAL_CALL,
                        f"resolve the revision of {artifact.origin}",
                    ),
                ),
            )
        except ActivityError as error:
            pin = self._failed(
                tried,
                PinnedRevision(reference=reference, refresh=refresh, revision=kept),
                error,
            )
            self.state.pin = pin
            if not tried:
                self.context.record_event("Warning", "Unresolved", pin.problem)
        else:
            if answer is None:
                return
            self.state.pin = PinnedRevision(
                reference=reference, refresh=refresh, revision=answer.revision
            )
            if kept and kept != answer.revision:
                self.context.record_event(
                    "Normal",
                    "Refreshed",
                    f"{artifact.origin} moved from {kept} to {answer.revision}",
                )
        self._publish(self.state.pin)

    def _is_due(self, pin: PinnedRevision) -> bool:
        """Return whether a failed resolution is due for a retry.

        If it is early, requeue.
        """
        if (
            not pin.problem
            or not pin.retry_at
            or (not pin.revision and self._some_volume_may_tell())
        ):
            return False
        return not self.context.waits_until(pin.retry_at)

    def _failed(
        self, tried: PinnedRevision | None, pin: PinnedRevision, error: ActivityError
    ) -> PinnedRevision:
        """Return the pin after a failure.

        A rejected request is not repeated automatically. Other failures are retried
        with increasing delays.
        """
        final = isinstance(error.cause, ApplicationError) and error.cause.non_retryable
        errors = (tried.errors if tried else 0) + 1
        retry_at = ""
        if not final:
            delay = backoff.after_retries(errors - 1)
            retry_at = clock.timestamp(self.context.moment() + delay)
        return pin.model_copy(
            update={
                "problem": error_message(error),
                "errors": errors,
                "retry_at": retry_at,
                "final": final,
            }
        )

    def is_awaited(self) -> bool:
        """Return whether staging waits because the source may soon have an answer."""
        pin = self.state.pin
        return bool(
            pin
            and pin.waits_for_source
            and not download_started(self.state.stagings.values())
        )

    def learn(self) -> None:
        """Pin the commit of a volume that was filled by an unresolved reference.

        The cluster reports the commit and is not trusted: ignore values that are not
        commits of this kind of source.
        """
        pin, namespace, name = self.state.pin, self.context.namespace, self.context.name
        artifact = artifact_of(namespace, name, self.state)
        for staging in self.state.stagings.values():
            for copy in staging.copies:
                if copy.literal and not can_be_pin(artifact.source, copy.commit):
                    copy.commit = ""
        if pin is None or pin.revision or pin.reference != reference_of(artifact):
            return
        written = key_of(namespace, name, self.state)
        found: list[tuple[str, CacheCopy]] = []
        for cluster, staging in sorted(self.state.stagings.items()):
            copies = [copy for copy in staging.copies if copy.artifact_key == written]
            found += [
                (cluster, copy) for copy in copies if copy.literal and copy.commit
            ]
        if not found:
            return
        cluster, first = found[0]
        self.state.pin = PinnedRevision(
            reference=pin.reference, refresh=pin.refresh, revision=first.commit
        )
        for _, copy in found:
            if copy.commit == first.commit:
                copy.pinned_key = key_of(namespace, name, self.state, first.commit)
        self.context.record_event(
            "Normal",
            "Resolved",
            f"the volume on {cluster} holds {first.commit}, "
            "which all other clusters stage",
        )
        self._publish(self.state.pin)

    def retry(self) -> None:
        """Resolve a failed reference again in the next pass."""
        pin = self.state.pin
        if pin and pin.problem and (pin.revision or not self._some_volume_may_tell()):
            now = clock.timestamp(self.context.moment())
            self.state.pin = (
                pin.model_copy(update={"retry_at": now}) if pin.revision else None
            )

    def _some_volume_may_tell(self) -> bool:
        stagings = self.state.stagings.values()
        return any(any(map(may_tell_revision, each.copies)) for each in stagings)

    def _publish(self, pin: PinnedRevision) -> None:
        self.context.set_condition("RevisionPinned", *revision_verdict(pin))
        self.context.publish()
