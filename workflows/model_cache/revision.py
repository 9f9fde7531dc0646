"""Which revision a ModelCache stages.

The reference is resolved once, so that a cluster that is selected a day later gets the same commit. While its source does not answer
nothing is staged, for some minutes. After that, or where the source refuses the control plane, one cluster stages the reference as it is
written, and the commit that its volume holds is staged on all others.
"""

from datetime import datetime

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
from workflows.model_cache.state import CacheState, PinnedRevision
from workflows.model_cache.status import revision_verdict


class Revision:
    """Resolves the reference of a cache's source and pins the answer."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    async def pin(self) -> None:
        """Resolve the reference, unless that was done already; a new value of the refresh annotation resolves it again."""
        artifact = artifact_of(self.context.namespace, self.context.name, self.state)
        refresh = self.state.annotations.get(labels.REFRESH, "")
        reference = reference_of(artifact)
        old = self.state.pin
        tried = old if old and (old.reference, old.refresh) == (reference, refresh) else None
        if tried and not self._is_due(tried):
            return
        kept = old.revision if old and old.reference == reference else ""
        try:
            answer = await self.context.run_until(
                lambda: self.state.deleting,
                workflow.execute_activity_method(
                    RevisionActivities.resolve_revision,
                    ResolveRevision(namespace=self.context.namespace, name=self.context.name, spec=self.state.spec or {}),
                    **activity_options.on_cluster(activity_options.EXTERNAL_CALL, f"resolve the revision of {artifact.origin}"),
                ),
            )
        except ActivityError as error:
            pin = self._failed(tried, PinnedRevision(reference=reference, refresh=refresh, revision=kept), error)
            self.state.pin = pin
            if not tried:
                self.context.record_event("Warning", "Unresolved", pin.problem)
        else:
            if answer is None:
                return
            self.state.pin = PinnedRevision(reference=reference, refresh=refresh, revision=answer.revision)
            if kept and kept != answer.revision:
                self.context.record_event("Normal", "Refreshed", f"{artifact.origin} moved from {kept} to {answer.revision}")
        self._publish(self.state.pin)

    def _is_due(self, pin: PinnedRevision) -> bool:
        """Tell whether a reference that was tried to resolve is to be resolved again now; requeues for later."""
        if not pin.problem or not pin.retry_at or (not pin.revision and self._some_volume_may_tell()):
            return False
        if self.context.is_future(pin.retry_at):
            self.context.requeue_at(datetime.fromisoformat(pin.retry_at))
            return False
        return True

    def _failed(self, tried: PinnedRevision | None, pin: PinnedRevision, error: ActivityError) -> PinnedRevision:
        """Give the pin after a failure: what a source refuses is not asked for again by time, all else ever more rarely."""
        final = isinstance(error.cause, ApplicationError) and error.cause.non_retryable
        errors = (tried.errors if tried else 0) + 1
        retry_at = "" if final else clock.timestamp(self.context.moment() + backoff.after_retries(errors - 1))
        return pin.model_copy(update={"problem": error_message(error), "errors": errors, "retry_at": retry_at, "final": final})

    def is_awaited(self) -> bool:
        """Tell whether nothing is staged yet, because the source may soon say what the reference means."""
        pin = self.state.pin
        return bool(pin and pin.waits_for_source and not download_started(self.state.stagings.values()))

    def learn(self) -> None:
        """Pin the commit that a volume holds which was filled by the reference as it is written.

        A cluster says it, and could say anything: what is no commit of this kind of source counts as nothing said.
        """
        pin, namespace, name = self.state.pin, self.context.namespace, self.context.name
        artifact = artifact_of(namespace, name, self.state)
        for copy in (copy for staging in self.state.stagings.values() for copy in staging.copies if copy.literal and copy.commit):
            copy.commit = copy.commit if can_be_pin(artifact.source, copy.commit) else ""
        if pin is None or pin.revision or pin.reference != reference_of(artifact):
            return
        written = key_of(namespace, name, self.state)
        found = [
            (cluster, copy)
            for cluster, staging in sorted(self.state.stagings.items())
            for copy in staging.copies
            if copy.literal and copy.commit and copy.artifact_key == written
        ]
        if not found:
            return
        cluster, first = found[0]
        self.state.pin = PinnedRevision(reference=pin.reference, refresh=pin.refresh, revision=first.commit)
        for _, copy in found:
            if copy.commit == first.commit:
                copy.pinned_key = key_of(namespace, name, self.state, first.commit)
        self.context.record_event("Normal", "Resolved", f"the volume on {cluster} holds {first.commit}; all other clusters stage that")
        self._publish(self.state.pin)

    def retry(self) -> None:
        """Resolve again in the next pass what could not be resolved."""
        pin = self.state.pin
        if pin and pin.problem and (pin.revision or not self._some_volume_may_tell()):
            now = clock.timestamp(self.context.moment())
            self.state.pin = pin.model_copy(update={"retry_at": now}) if pin.revision else None

    def _some_volume_may_tell(self) -> bool:
        return any(may_tell_revision(copy) for staging in self.state.stagings.values() for copy in staging.copies)

    def _publish(self, pin: PinnedRevision) -> None:
        self.context.set_condition("RevisionPinned", *revision_verdict(pin))
        self.context.publish()
