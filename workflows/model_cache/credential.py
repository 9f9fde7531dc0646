"""Waits in an activity for a credential that is missing or rejected.

Timers in the workflow would add events to the history.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.caches.activities import CacheActivities
from api_types.errors import error_message, error_type
from api_types.messages.caches import AwaitCredential
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.model_cache.plan import (
    AUTH_REFUSED,
    may_tell_revision,
    waits_for_credential,
)
from workflows.model_cache.results import reset_backoff
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, CacheState

# The watch fails only with errors that its own retries did not fix.
WATCH_AGAIN = timedelta(minutes=1)


class CredentialWatch:
    """Watches the Secrets of a cache while a cluster waits for them."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state
        self.watching: asyncio.Task[None] | None = None

    def update(self, desired: DesiredStaging | None) -> None:
        """Start watching when a cluster waits for a credential. Stop when none does."""
        if self.watching and self.watching.done():
            self.watching = None
        stagings = self.state.stagings.values()
        current = [staging.copies[0] for staging in stagings if staging.copies]
        waits = any(map(waits_for_credential, current))
        has_secret = desired and (desired.credential or desired.others)
        if waits and desired and has_secret and self.watching is None:
            secret = AwaitCredential(
                namespace=self.context.namespace,
                name=desired.credential,
                key=desired.credential_key,
                version=self.state.credential,
                others=list(desired.others),
            )
            self.watching = asyncio.create_task(self._watch(secret))
        elif not waits and self.watching:
            self.watching.cancel()

    async def stop(self) -> None:
        if self.watching:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
            self.watching = None

    async def _watch(self, secret: AwaitCredential) -> None:
        secrets = [secret.name, *(other.name for other in secret.others)]
        waited_for = dict.fromkeys(filter(None, secrets))
        summary = (
            f"wait for a change of Secret {secret.namespace}/{', '.join(waited_for)}"
        )
        try:
            version = await workflow.execute_activity_method(
                CacheActivities.await_credential,
                secret,
                **activity_options.on_cluster(activity_options.LONG_WAIT, summary),
            )
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self.context.record_event(
                    "Warning", error_type(error), error_message(error)
                )
                self.context.requeue_after(WATCH_AGAIN)
            return
        self.state.credential = version
        for staging in self.state.stagings.values():
            for copy in staging.copies[:1]:
                copy.missing_credential = ""
                if copy.failed and copy.exit_code == AUTH_REFUSED:
                    reset_backoff(copy)
        pin = self.state.pin
        copies: list[CacheCopy] = []
        for staging in self.state.stagings.values():
            copies += staging.copies
        if pin and not pin.revision and not any(map(may_tell_revision, copies)):
            # The reference can perhaps be resolved with the new credential.
            self.state.pin = None
        self.context.mark_changed()
