"""The base class of all entity workflows: signals, updates and the reconcile loop.

An entity is one object. Its spec arrives by signal, its workflow holds its status, and
the workflow runs until the object is gone. The loop is the same for every kind: when
the object changes or is due, observe, decide, act, publish. Signal handlers only store
a message. All work happens in `reconcile`, one pass at a time, so a worker may die
between any two steps. Other modules of this package check, show and publish manifests.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError
from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import CheckReceivers
from api_types import names, queues
from api_types.base import Message
from api_types.errors import Conflict, InvalidInput
from api_types.messages.delivery import Delivery
from api_types.messages.entities import (
    CancelRequested,
    Delete,
    Force,
    Keep,
    Replace,
    RetryNow,
    SetSpec,
)
from api_types.messages.signals import EntitySignals, SenderSignals
from api_types.validation.manifests import (
    InvalidManifest,
    Manifest,
    dump,
    is_taken_while_deleting,
    load,
)
from workflows.entity import admission, periods
from workflows.entity.arguments import problems_of
from workflows.entity.calls.delivery import undelivered, with_delivery
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.calls.sending import LOCAL_CALLS_MAX, call_entities
from workflows.entity.conditions import (
    CALL_REFUSED,
    CALLS_ACCEPTED,
    CANCEL_REFUSED,
    FALSE,
    MALFORMED,
    RECEIVER_REFUSES,
    SIGNALS_DELIVERED,
    is_true,
    waiting_for,
)
from workflows.entity.context import EntityContext, workflow_time
from workflows.entity.handles import changes, checks, handles
from workflows.entity.manifest import manifest_of
from workflows.entity.memo import memo_to_carry
from workflows.entity.publishing import Publisher
from workflows.entity.start import check_id
from workflows.entity.state import EntityState
from workflows.entity.timers.requeue_timer import RequeueTimer
from workflows.entity.timers.steady_time import SteadyTime

# The number of request ids that `describe` shows.
REQUESTS_SHOWN = 64
# No workflow task needs as many passes. Without a limit, passes that queue one another
# would never let the task end, and would block the thread of the worker.
PASSES_MAX = 100
PAUSE_AFTER_PASSES = timedelta(minutes=1)


StateT = TypeVar("StateT", bound=EntityState)


class Entity(ABC, Generic[StateT]):
    """The workflow of one object.

    A subclass defines `reconcile` and `status` of its kind.
    """

    kind: ClassVar[str]

    def __init__(self, state: StateT) -> None:
        check_id(self.kind)
        self.time = SteadyTime(state.time)
        self.context = EntityContext(
            self.kind, state, self.publish, moment=self.time.now, clock=workflow_time
        )
        self.state = state
        self.name, self.namespace, self.title = (
            self.context.name,
            self.context.namespace,
            self.context.title,
        )
        self._publisher = Publisher(self.context)
        self._timer = RequeueTimer(
            f"{self.title}: requeue", self.context.requeue, self.time
        )
        self._resync_due = False
        self.arrivals: Counter[str] = Counter()
        # The problems of refused activity calls, by the summary of the call.
        self._refused_calls: dict[str, str] = {}
        self._retries_requested = 0
        self._has_begun = self._drew_uid_early = False
        self._passes = self._passes_since = 0
        workflow.register_random_seed_callback(self._note_reset)

    # Reconcile loop

    async def run_until_deleted(self) -> None:
        self._has_begun = True
        self._begin()
        # The previous run may have ended during a refused call that this run does not
        # repeat.
        self.context.remove_condition(CALLS_ACCEPTED)
        resync = asyncio.create_task(self._resync_periodically())
        gone = False
        while not gone:
            await self._until_queued()
            self.context.queued = False
            self.context.requeue_time = None
            if self._resync_due:
                await self._resync()
            gone = await self.reconcile()
            self.publish()
            if not gone and workflow.info().is_continue_as_new_suggested():
                break
        resync.cancel()
        self._timer.cancel()
        for end in self.context.on_end:
            end()
        await self.stop_background_tasks()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not gone:
            self.state.time = self.time.now().isoformat()
            workflow.continue_as_new(self.state, memo=memo_to_carry())

    def _begin(self) -> None:
        """Assign the uid.

        The handler of an update that arrives with the start runs before `run`.
        """
        if not self.state.uid:
            self.state.uid = str(workflow.uuid4())
            self._drew_uid_early = not self._has_begun
        self.state.creation_timestamp = (
            self.state.creation_timestamp or self.context.now()
        )

    def _note_reset(self, seed: int) -> None:
        """Record that an operator reset the workflow.

        The effects of the tasks after that point remain, and the state does not know
        them. Only a reset changes the random seed, in the task that follows it, so the
        replay of the tasks before it decides as they did. The run's id does not serve:
        the new run replays these tasks too, with its own id.

        A reset to the first task delivers the updates of the earlier run first, and the
        seed of that run would draw its uid, which others may hold for superseded. So
        the uid is drawn again.
        """
        del seed
        self.state.reset = True
        if self._drew_uid_early and not self._has_begun:
            self.state.uid = ""
        self.on_reset()

    async def _until_queued(self) -> None:
        if self.context.queued and self._has_too_many_passes():
            self.context.record_event(
                "Warning",
                "PassesRepeat",
                f"{PASSES_MAX} passes in a row changed the object, which is a defect; "
                "the next pass follows in a minute",
            )
            self.publish()
            self.context.queued = False
            self.context.requeue_after(PAUSE_AFTER_PASSES)
        if not self.context.queued:
            self._timer.update(self.context.requeue_time)
            await workflow.wait_condition(lambda: self.context.queued)

    def _has_too_many_passes(self) -> bool:
        """Count the passes of a workflow task, which does not change its history."""
        length = workflow.info().get_current_history_length()
        self._passes = self._passes + 1 if length == self._passes_since else 1
        self._passes_since = length
        return self._passes > PASSES_MAX

    async def _resync_periodically(self) -> None:
        while True:
            jitter = 1 + periods.RESYNC_JITTER * workflow.random().uniform(-1, 1)
            await workflow.sleep(periods.RESYNC * jitter, summary="resync")
            self.request_check()

    def request_check(self) -> None:
        """Schedule a check of receivers and dependents for the next pass.

        The check finds workflows that were restarted or do not run.
        """
        self._resync_due = True
        self.context.requeue()

    async def _resync(self) -> None:
        """Find receivers that restarted since the last check, and report to them."""
        self._resync_due = False
        self.on_resync()
        known = {
            workflow_id: self.state.receivers.get(workflow_id, "")
            for workflow_id in self.receivers()
        }
        refusals = [
            report
            for _, report in sorted(self.state.deliveries.items())
            if report.problem
        ]
        redeliveries = {
            names.redelivery_id(report.receiver): report for report in refusals
        }
        others = [*self.dependents(), *redeliveries]
        if not known and not others:
            return
        summary = f"check that {len(known) + len(others)} others still run"
        found = await call_entities(
            EntityClient.check_receivers,
            CheckReceivers(known=known, others=others),
            summary,
            local=len(known) + len(others) <= LOCAL_CALLS_MAX,
        )
        self.state.receivers = known | found.changed
        ended = [each for each in found.missing if each in redeliveries]
        self._forget_refusals([redeliveries[workflow_id] for workflow_id in ended])
        missing = [each for each in found.missing if each not in redeliveries]
        self.on_receivers_lost([*found.changed, *missing])

    def _forget_refusals(self, refusals: list[Delivery]) -> None:
        """Forget refusals whose Redelivery does not run.

        A terminated Redelivery reports no end.
        """
        if refusals:
            self.state.deliveries = {
                receiver: report
                for receiver, report in self.state.deliveries.items()
                if report not in refusals
            }
            self._show_refusals()

    # Hooks of the kinds

    @abstractmethod
    async def reconcile(self) -> bool:
        """Run one pass: observe, decide, act. Return True when the object is gone."""

    def status(self) -> Mapping[str, Any]:
        """Return the status fields of the kind."""
        return {}

    def phase(self) -> str:
        """Return the phase; all kinds have the same phases."""
        if self.state.deleting:
            return "Deleting"
        if is_true(self.state.conditions, "Ready"):
            return "Ready"
        return "Progressing" if self.state.spec else "Pending"

    def details(self) -> list[str]:
        """Return further lines in Markdown for the Temporal UI."""
        return []

    def with_own_replicas(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the object's own replica count, if its kind has one.

        The manifest does not set the count, so the count of the object stays.
        """
        return manifest

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Merge the applied spec with fields of other owners.

        An autoscaler, for example, owns the replica count.
        """
        return spec

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """React to a new generation, or to changed labels and annotations alone."""

    def take_while_deleting(self, manifest: Any) -> bool:
        """Accept a change of the deletion options; return False to refuse it."""
        del manifest
        return False

    def on_delete_requested(self, message: Delete) -> None:
        pass

    def waits_for_users(self) -> bool:
        """Return whether the deletion waits for users and has removed nothing yet."""
        return False

    def on_reset(self) -> None:
        """Record that objects of the tasks that were reset may exist."""

    def on_retry_requested(self) -> None:
        """Reset backoffs, because a user requested the next attempt."""

    def receivers(self) -> list[str]:
        """Return the ids of workflows that this object reports to or registers at."""
        return []

    def dependents(self) -> list[str]:
        """Return the ids of the workflows that must run because of this object."""
        return []

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """React to lost receivers and dependents.

        A receiver that restarted has lost the reports of this object; other lost
        workflows do not run.
        """

    def on_resync(self) -> None:
        """Do periodic work, once per resync."""

    async def stop_background_tasks(self) -> None:
        """Stop background tasks before the run ends."""

    # Requests of users

    @handles(EntitySignals.SET_SPEC)
    def set_spec(self, message: SetSpec) -> None:
        """Create or change the object.

        A repeated request id or equal content changes nothing.
        """
        if not self.accept_request(message.request_id):
            return
        if self.state.deleting:
            if self.take_while_deleting(message.manifest):
                return
            self.context.record_event(
                "Warning",
                "BeingDeleted",
                "a new spec was refused: the object is being deleted; "
                "apply it again when it is gone",
            )
            return
        try:
            self._accept(message)
        except InvalidManifest as refusal:
            admission.refuse(self.context, "; ".join(refusal.lines()))

    @handles(EntitySignals.DELETE)
    def delete(self, message: Delete) -> None:
        if message.uid and message.uid != self.state.uid:
            # The request is for an earlier object of this name, and arrived late.
            return
        if not self.accept_request(message.request_id):
            return
        if not self.state.deleting:
            self.state.deletion_timestamp = self.context.now()
            self.context.record_event(
                "Normal", "Deleting", f"deletion requested by {message.by or 'unknown'}"
            )
        self.on_delete_requested(message)
        self.context.mark_changed()

    @handles(EntitySignals.FORCE)
    def force(self, message: Force) -> None:
        """Skip the current teardown step, or all remaining ones."""
        if not self.accept_request(message.request_id):
            return
        if not self.state.deleting:
            self.context.record_event(
                "Warning",
                "ForceRefused",
                "only the teardown of an object that is being deleted can be forced; "
                "delete it first",
            )
            return
        self.state.forced = message.scope
        skipped = (
            "all remaining teardown steps"
            if message.scope == "all"
            else "the current teardown step"
        )
        by, reason = message.by or "unknown", message.reason or "no reason given"
        self.context.record_event(
            "Warning", "Forced", f"{by} skipped {skipped}: {reason}"
        )
        self.context.mark_changed()

    @handles(EntitySignals.RETRY_NOW)
    def retry_now(self, message: RetryNow) -> None:
        """Make pending attempts now instead of after their backoff."""
        if not self.accept_request(message.request_id):
            return
        self.state.attempts = 0
        self._retries_requested += 1
        self.context.requeue_time = None
        self.on_retry_requested()
        self.context.requeue()

    @handles(EntitySignals.KEEP)
    def keep(self, message: Keep) -> None:
        """Cancel the deletion, if nothing has been removed yet."""
        if not self.accept_request(message.request_id) or not self.state.deleting:
            return
        if not self.waits_for_users():
            why = "the teardown has begun; apply the object again when it is gone"
            self.context.record_event("Warning", "KeepRefused", why)
            return
        self.state.deletion_timestamp = ""
        self.state.conditions = [
            row for row in self.state.conditions if row.type != "Deleting"
        ]
        by = message.by or "unknown"
        self.context.record_event("Normal", "Kept", f"{by} cancelled the deletion")
        self.context.mark_changed()

    @handles(EntitySignals.CANCEL_REQUESTED)
    def cancel_requested(self, message: CancelRequested) -> None:
        """Refuse the cancellation of this workflow.

        A cancelled workflow would leave its objects on clusters without an owner.
        """
        reason = f" ({message.reason})" if message.reason else ""
        self.context.record_refusal(
            CANCEL_REFUSED,
            f"a request to cancel the workflow{reason} was ignored, as it would delete nothing: "
            "delete the object instead",
        )

    @changes
    def replace(self, payload: Any) -> dict[str, Any]:
        """Change the object and return it.

        Callers use this update to learn whether the change was accepted.
        """
        message = Replace.model_validate(payload)
        self._begin()
        if self.accept_request(message.request_id):
            if self.state.deleting:
                self.take_while_deleting(message.manifest)
            else:
                self._accept(message)
        return self.manifest()

    @checks(replace)
    def check_replace(self, payload: Any) -> None:
        """Refuse a stale or invalid change before the history records it."""
        try:
            message = Replace.model_validate(payload)
            if message.request_id in self.state.requests:
                # An earlier attempt was accepted, but its caller missed the answer.
                # `replace` returns the answer again and changes nothing.
                return
            if self.state.deleting and not self._takes_while_deleting(message.manifest):
                raise Conflict(
                    f"{self.title} is being deleted; apply it again when it is gone"
                )
            if message.resource_version and not self.context.is_manifest_of(
                message.resource_version
            ):
                raise Conflict(
                    f"{self.title} has resourceVersion {self.state.resource_version}, "
                    f"not {message.resource_version}: it was modified "
                    "since you read it; read it again and repeat your change"
                )
            self.admitted(message.manifest)
        except ValidationError as error:
            raise InvalidInput(f"{self.title}: {problems_of(error)}") from error
        except InvalidManifest as refusal:
            raise InvalidInput(str(refusal)) from refusal

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return the object as its manifest with status, and with fields for programs.

        The fields are the accepted request ids, the request ids that changed the
        object, and the version of the last change of its manifest.
        """
        return {
            **self.manifest(),
            "manifestVersion": self.state.manifest_version,
            "appliedRequestIds": self.state.requests[-REQUESTS_SHOWN:],
            "changingRequestIds": self.state.changing_requests,
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """Return the list of reasons why the object waits."""
        return waiting_for(self.state.conditions, deleting=self.state.deleting)

    # State of the object

    @handles(SenderSignals.DELIVERY)
    def delivery(self, message: Delivery) -> None:
        """Record whether a receiver refuses signals of this object."""
        self.state.deliveries = with_delivery(self.state.deliveries, message)
        self._show_refusals()

    def _show_refusals(self) -> None:
        refusing = [
            undelivered(report)
            for _, report in sorted(self.state.deliveries.items())
            if report.problem
        ]
        if refusing:
            self.context.set_condition(
                SIGNALS_DELIVERED, FALSE, RECEIVER_REFUSES, "; ".join(refusing)
            )
        else:
            self.context.remove_condition(SIGNALS_DELIVERED)
        self.publish()

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal with an unreadable argument as an event or a condition.

        A signal cannot be refused.
        """
        self.context.record_refusal(
            MALFORMED, f"a {message.__name__} message was ignored: {problems}"
        )
        if self.state.spec is None:
            admission.refuse(self.context, problems)

    def call_refused(self, summary: str, problem: str) -> None:
        """Show the refusal of an activity call that is being retried."""
        self._refused_calls[summary] = problem
        self._show_refused_calls()

    def call_accepted(self, summary: str) -> None:
        self._refused_calls.pop(summary, None)
        self._show_refused_calls()

    async def before_next_call(self, delay: timedelta) -> None:
        """Wait for the delay, or until a user requests the next attempt."""
        before = self._retries_requested
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: self._retries_requested != before,
                timeout=delay,
                timeout_summary=NEXT_CALL,
            )

    def _show_refused_calls(self) -> None:
        if self._refused_calls:
            summary, problem = min(self._refused_calls.items())
            message = (
                f"{summary}: {problem}. The call is retried; "
                f"upgrade the workers that serve {queues.WORKFLOWS}"
            )
            self.context.set_condition(CALLS_ACCEPTED, FALSE, CALL_REFUSED, message)
        else:
            self.context.remove_condition(CALLS_ACCEPTED)
        self.publish()

    def accept_request(self, request_id: str) -> bool:
        """Remember a request id. Return False if it was accepted before."""
        return admission.accept_request(self.state, request_id)

    def admitted(self, document: Any) -> Manifest:
        """Check a manifest against the identity and the present state of the object."""
        return admission.admitted(
            self.context, document, None if self.state.spec is None else self.manifest()
        )

    def _takes_while_deleting(self, document: Any) -> bool:
        """Return whether a manifest changes only the options of a deletion.

        Raises InvalidManifest.
        """
        return self.state.spec is not None and is_taken_while_deleting(
            load(self.manifest()), self.admitted(document)
        )

    def _accept(self, message: SetSpec | Replace) -> None:
        """Store the manifest of a request. Raises InvalidManifest."""
        before = self.state.written
        manifest = self.admitted(message.manifest)
        if not isinstance(message, SetSpec) and message.keeps_replicas:
            manifest = self.with_own_replicas(manifest)
        self.accept(manifest, message.by, message.reason)
        if self.state.written != before:
            self.state.changing_requests = [
                *self.state.changing_requests,
                message.request_id,
            ][-REQUESTS_SHOWN:]

    def accept(self, manifest: Manifest, by: str, reason: str) -> None:
        """Store a checked manifest.

        An equal spec makes no new generation. A kind may record the reason.
        """
        del reason
        document, before = dump(manifest), self.state.generation
        written = admission.without_owners(self.state.written)
        if not admission.store(
            self.context, document["metadata"], self.merge_spec(document["spec"])
        ):
            return
        if admission.without_owners(self.state.written) == written:
            # Field owners do not change the object, so no attempt is repeated and no
            # event is recorded.
            self.context.mark_changed()
            return
        new_generation = self.state.generation != before
        self.on_manifest_changed(new_generation=new_generation)
        if by and new_generation:
            self.context.record_event(
                "Normal",
                "SpecChanged",
                f"generation {self.state.generation} was written by {by}",
            )
        elif by:
            self.context.record_event(
                "Normal", "MetadataChanged", f"labels or annotations changed by {by}"
            )
        self.context.mark_changed()

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the object, with status."""
        return manifest_of(self.context, self.phase(), self.status())

    def publish(self) -> None:
        """Publish phase and readiness as search attributes, and details for the UI."""
        self._publisher.publish(self.phase(), self.details())
