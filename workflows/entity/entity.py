"""What all entities have in common.

An entity is one object with a life: its spec comes in by signal, its status is kept here, its workflow runs until the object is gone.
The loop is the same everywhere: something changed or is due, so observe, decide, do, publish. Handlers only note what arrived; all work
happens in `reconcile`, one pass at a time, so a worker may die between any two steps.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError
from temporalio import workflow

from activities.messaging import KIND, NAME, NAMESPACE, PHASE, READY
from api_types import names
from api_types.base import Message
from api_types.errors import Conflict, InvalidInput
from api_types.labels import GROUP
from api_types.messages.entities import Delete, Force, Replace, RetryNow, SetSpec
from api_types.validation.manifests import NO_CHECKS, InvalidManifest, Manifest, admit, admit_update, dump, load
from workflows.entity.conditions import FALSE, TRUE, condition_of, is_true
from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState

# Request ids are remembered long enough to outlast every retry of a sender, and no longer.
REQUESTS_KEPT = 512
REQUESTS_SHOWN = 64

# An idle entity repeats its reports periodically, in case one was lost with its receiver. Twice an hour costs 240 events a day.
RESYNC = timedelta(minutes=30)


StateT = TypeVar("StateT", bound=EntityState)
MessageT = TypeVar("MessageT", bound=Message)
ResultT = TypeVar("ResultT")


class Entity(Generic[StateT]):
    """One object with a life. A subclass says what its kind does in `reconcile`, and what its status shows in `status`."""

    kind: ClassVar[str]

    def __init__(self, state: StateT) -> None:
        self.context = EntityContext(self.kind, state)
        self.state = state
        self.name, self.namespace, self.title = self.context.name, self.context.namespace, self.context.title
        self._published: tuple[Any, ...] = ()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at: datetime | None = None

    # --- messages from users ------------------------------------------------------------------------------------------------------

    @workflow.signal
    def set_spec(self, order: Any) -> None:
        """Create the object or change it; a repeat of a request id, or of the same content, changes nothing."""
        message = self.read(SetSpec, order)
        if message is None or not self.accept_request(message.request_id):
            return
        if self.state.deleted:
            self.event("Warning", "BeingDeleted", "a new spec was refused: the object is being deleted; apply it again when it is gone")
            return
        try:
            self.accept(self.admitted(message.manifest), message.by)
        except InvalidManifest as refusal:
            self.refuse("; ".join(str(problem) for problem in refusal.problems))

    @workflow.signal
    def delete(self, order: Any) -> None:
        """Begin the ordered teardown."""
        message = self.read(Delete, order)
        if message is None or not self.accept_request(message.request_id):
            return
        if not self.state.deleted:
            self.state.deleted = self.now()
            self.event("Normal", "Deleting", f"deletion was asked for by {message.by or 'somebody'}")
        self.on_delete_requested(message)
        self.touch()

    @workflow.signal
    def force(self, order: Any) -> None:
        """Give up the teardown step that is waited for, or all of them."""
        message = self.read(Force, order)
        if message is None or not self.accept_request(message.request_id):
            return
        if not self.state.deleted:
            self.event("Warning", "ForceRefused", "only the teardown of an object that is being deleted can be forced; delete it first")
            return
        self.state.forced = message.scope
        self.event("Warning", "Forced", f"{message.by or 'somebody'} gave up {message.scope}: {message.reason or 'no reason given'}")
        self.touch()

    @workflow.signal
    def retry_now(self, order: Any) -> None:
        """Try at once what waits for its next attempt."""
        if self.read(RetryNow, order) is not None:
            self.state.attempts = 0
            self.context.requeue_time = None
            self.on_retry_requested()
            self.requeue()

    @workflow.update
    def replace(self, order: Any) -> dict[str, Any]:
        """Change the object and answer with it; for callers that need a verdict."""
        message = Replace.model_validate(order)
        if self.accept_request(message.request_id):
            self.accept(self.admitted(message.manifest), message.by)
        return self.manifest()

    @replace.validator
    def check_replace(self, order: Any) -> None:
        """Refuse a stale or bad change before it leaves a trace."""
        try:
            message = Replace.model_validate(order)
            if self.state.deleted:
                raise Conflict(f"{self.title} is being deleted; apply it again when it is gone")
            if message.resource_version and message.resource_version != str(self.state.revision):
                raise Conflict(
                    f"{self.title} has resourceVersion {self.state.revision}, not {message.resource_version}: somebody changed it since "
                    "you read it; read it again and repeat your change"
                )
            self.admitted(message.manifest)
        except ValidationError as error:
            raise InvalidInput(f"{self.title}: {error}") from error
        except InvalidManifest as refusal:
            raise InvalidInput("\n".join(str(problem) for problem in refusal.problems)) from refusal

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Give the object as its manifest with status, and the request ids that it has taken."""
        return {**self.manifest(), "appliedRequestIds": self.state.requests[-REQUESTS_SHOWN:]}

    @workflow.query
    def waiting(self) -> list[str]:
        """Say what the object waits for, in words."""
        return self.waits()

    # --- what a kind says of itself -----------------------------------------------------------------------------------------------

    @abstractmethod
    async def reconcile(self) -> bool:
        """Observe, decide, do: one pass. True when the object is gone."""

    def status(self) -> Mapping[str, Any]:
        """Give the kind's own status fields."""
        return {}

    def waits(self) -> list[str]:
        """Say what is waited for: by default the messages of the conditions that are not True; a teardown speaks only of itself."""
        if self.state.deleted and (leaving := condition_of(self.state.conditions, "Deleting")):
            return [f"{leaving.reason}: {leaving.message}"]
        return [f"{c.type}: {c.reason}{f' ({c.message})' if c.message else ''}" for c in self.state.conditions if c.status != TRUE]

    def phase(self) -> str:
        """Give one of the phases that every kind shares."""
        if self.state.deleted:
            return "Deleting"
        if is_true(self.state.conditions, "Ready"):
            return "Ready"
        return "Progressing" if self.state.spec else "Pending"

    def details(self) -> list[str]:
        """Give more lines, in Markdown, for the Temporal UI."""
        return []

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Merge a newly applied spec with fields that others own, such as a replica count set by an autoscaler."""
        return spec

    def on_spec_changed(self) -> None:
        """React to a new generation."""

    def on_delete_requested(self, order: Delete) -> None:
        """React to a request for deletion."""

    def on_retry_requested(self) -> None:
        """Reset backoffs: the user wants the next attempt now."""

    def repeat_reports(self) -> None:
        """Repeat reports to other entities with the next pass; called at every resync period."""

    async def stop_background_tasks(self) -> None:
        """End what runs in the background, before continue-as-new and at the end."""

    # --- the life -----------------------------------------------------------------------------------------------------------------

    async def run_until_deleted(self) -> None:
        """Run until the object is gone."""
        if not self.state.uid:
            self.state.uid = str(workflow.uuid4())
        self.state.created = self.state.created or self.now()
        repetition = asyncio.create_task(self._repeat_reports_periodically())
        gone = False
        while not gone:
            await self._until_work()
            self.context.queued = False
            self.context.requeue_time = None
            gone = await self.reconcile()
            self.publish()
            if not gone and workflow.info().is_continue_as_new_suggested():
                break
        repetition.cancel()
        if self._alarm:
            self._alarm.cancel()
        await self.stop_background_tasks()
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not gone:
            workflow.continue_as_new(self.state)

    async def _until_work(self) -> None:
        if not self.context.queued:
            self._set_alarm()
            await workflow.wait_condition(lambda: self.context.queued)

    def _set_alarm(self) -> None:
        """Have one timer for the next look, and only if there is one. One that rings no later is kept: each change costs two events."""
        ringing = self._alarm is not None and not self._alarm.done()
        if ringing and self.context.requeue_time is not None and self._alarm_at is not None and self._alarm_at <= self.context.requeue_time:
            return
        if self._alarm is not None and ringing:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, self.context.requeue_time
        if self.context.requeue_time is not None:
            self._alarm = asyncio.create_task(self._ring(max(self.context.requeue_time - workflow.now(), timedelta())))

    async def _ring(self, after: timedelta) -> None:
        await workflow.sleep(after, summary=f"{self.title}: next look"[:100])
        self.requeue()

    async def _repeat_reports_periodically(self) -> None:
        while True:
            await workflow.sleep(RESYNC, summary="repeat reports")
            self.repeat_reports()
            self.requeue()

    def requeue(self) -> None:
        """Reconcile again as soon as the present pass is over."""
        self.context.requeue()

    def requeue_after(self, after: timedelta) -> None:
        """Reconcile again after a delay."""
        self.context.requeue_after(after)

    def is_early(self, moment: str) -> bool:
        """Tell whether a moment (ISO 8601) is still to come; if so, ask for a pass then."""
        if not self.context.is_future(moment):
            return False
        self.context.requeue_at(datetime.fromisoformat(moment))
        return True

    def now(self) -> str:
        """Give the workflow's time as Kubernetes writes it."""
        return self.context.now()

    # --- keeping the object -------------------------------------------------------------------------------------------------------

    def read(self, model: type[MessageT], order: Any) -> MessageT | None:
        """Read a signal's argument. A malformed one becomes a condition or an event, since a signal cannot be refused."""
        try:
            return model.model_validate(order)
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
            self.event("Warning", "MalformedMessage", f"a {model.__name__} message was ignored: {problems}")
            if self.state.spec is None:
                self.refuse(problems)
            return None

    def accept_request(self, request_id: str) -> bool:
        """Remember the id of a request; False when it was accepted before. A request without an id is always new."""
        if not request_id:
            return True
        if request_id in self.state.requests:
            return False
        self.state.requests = [*self.state.requests, request_id][-REQUESTS_KEPT:]
        return True

    def admitted(self, document: Any) -> Manifest:
        """Check a manifest in full, CEL aside, against this object's identity and present state."""
        if not isinstance(document, dict):
            raise InvalidManifest.of(self.title, "manifest", "must be an object with apiVersion, kind, metadata and spec")
        manifest = admit(document, NO_CHECKS, self.namespace or "default").manifest
        written = (manifest.kind, manifest.metadata.namespace or "", manifest.metadata.name)
        if written != (self.kind, self.namespace, self.name):
            wrong = names.workflow_id(*written)
            raise InvalidManifest.of(self.title, "metadata", f"the manifest is of {wrong}; send it to the workflow of that id")
        if self.state.spec is not None:
            admit_update(load(self.manifest()), manifest)
        return manifest

    def accept(self, manifest: Manifest, by: str) -> None:
        """Take a checked manifest over; a spec that changes nothing changes no generation."""
        document = dump(manifest)
        metadata = document["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        spec = self.merge_spec(document["spec"])
        if condition_of(self.state.conditions, "SpecAccepted"):
            self.condition("SpecAccepted", TRUE, "Accepted", "")
        if (labels, annotations, spec) == (self.state.labels, self.state.annotations, self.state.spec):
            return
        if spec != self.state.spec:
            self.state.generation += 1
            self.state.attempts = 0
        self.state.labels, self.state.annotations, self.state.spec = labels, annotations, spec
        self.on_spec_changed()
        if by:
            self.event("Normal", "SpecChanged", f"generation {self.state.generation} was written by {by}")
        self.touch()

    def refuse(self, problems: str) -> None:
        """Keep the last good spec and say what is wrong with the new one."""
        self.condition("SpecAccepted", FALSE, "InvalidInput", problems)
        self.event("Warning", "InvalidInput", problems)
        if self.state.spec is None:
            self.condition("Ready", FALSE, "InvalidInput", problems)

    def condition(self, kind: str, status: str, reason: str, message: str = "") -> None:
        """Set a condition."""
        self.context.condition(kind, status, reason, message)

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event; callers do so on transitions only."""
        self.context.event(kind, reason, message)

    def touch(self) -> None:
        """Raise the resource version and requeue."""
        self.context.touch()

    def manifest(self) -> dict[str, Any]:
        """Give the object as its manifest, with status."""
        state = self.state
        metadata: dict[str, Any] = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        metadata |= {
            "uid": state.uid,
            "generation": state.generation,
            "resourceVersion": str(state.revision),
            "creationTimestamp": state.created,
        }
        if state.deleted:
            metadata["deletionTimestamp"] = state.deleted
        if state.labels:
            metadata["labels"] = state.labels
        if state.annotations:
            metadata["annotations"] = state.annotations
        status: dict[str, Any] = {
            "observedGeneration": state.observed_generation,
            "phase": self.phase(),
            "conditions": [condition.wire() for condition in state.conditions],
            "events": [event.wire() for event in state.events],
            **self.status(),
        }
        if state.left_behind:
            status["leftBehind"] = [item.wire() for item in state.left_behind]
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": self.kind,
            "metadata": metadata,
            "spec": state.spec if state.spec is not None else {},
            "status": status,
        }

    # --- showing it ---------------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Show phase and readiness to visibility, when they changed, and the details to the Temporal UI."""
        ready = condition_of(self.state.conditions, "Ready")
        shown = (self.phase(), ready.status if ready else "Unknown")
        if shown != self._published:
            workflow.upsert_search_attributes([PHASE.value_set(shown[0]), READY.value_set(shown[1]), *self.identity()])
            self._published = shown
        lines = [f"**{self.title}** — {shown[0]}", "", "| Condition | Status | Reason | Message |", "|---|---|---|---|"]
        lines += [f"| {c.type} | {c.status} | {c.reason} | {(c.message or '').replace('|', '/')} |" for c in self.state.conditions]
        lines += ["", *self.details()]
        lines += [f"- {event.last} {event.reason}: {event.message}" for event in reversed(self.state.events[-8:])]
        workflow.set_current_details("\n".join(lines))

    def identity(self) -> list[Any]:
        """Give the search attributes that never change, if they are not there: a plain Temporal client starts entities without them."""
        if self._published or any(pair.key.name == KIND.name for pair in workflow.info().typed_search_attributes):
            return []
        scope = [NAMESPACE.value_set(self.namespace)] if self.namespace else []
        return [KIND.value_set(self.kind), NAME.value_set(self.name), *scope]

    # --- signalling others --------------------------------------------------------------------------------------------------------

    async def tell(self, workflow_id: str, signal: str, payload: Message) -> bool:
        """Signal another entity; False when it does not run."""
        return await self.context.signal(workflow_id, signal, payload)

    async def unless(self, stop: Callable[[], bool], work: Awaitable[ResultT]) -> ResultT | None:
        """Do some work, but cancel it as soon as `stop()` holds; None unless it was done all the same."""
        return await self.context.run_until(stop, work)
