"""Which revision a ModelCache stages.

The reference is resolved once, so that a cluster that is selected a day later gets the same commit. Where it cannot be resolved, it is used
as it is written.
"""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.caches.revisions import RevisionActivities
from api_types import labels
from api_types.errors import error_message
from api_types.messages.caches import ResolveRevision
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.model_cache.plan import download_started
from workflows.model_cache.spec import artifact_of, reference_of
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
        if old and (old.reference, old.refresh) == (reference, refresh):
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
            self.state.pin = PinnedRevision(reference=reference, refresh=refresh, revision=kept, problem=error_message(error))
            self.context.record_event("Warning", "Unresolved", self.state.pin.problem)
        else:
            if answer is None:
                return
            self.state.pin = PinnedRevision(reference=reference, refresh=refresh, revision=answer.revision)
            if kept and kept != answer.revision:
                self.context.record_event("Normal", "Refreshed", f"{artifact.origin} moved from {kept} to {answer.revision}")
        self.context.set_condition("RevisionPinned", *revision_verdict(self.state.pin))
        self.context.publish()

    def retry(self) -> None:
        """Resolve again in the next pass what could not be resolved."""
        if self.state.pin and self.state.pin.problem and not download_started(self.state.stagings.values()):
            self.state.pin = None
