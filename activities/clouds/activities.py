"""The activities of a CloudCluster: what is wanted, one object made or deleted, all objects looked at, leftovers looked for.

They are the same for all clouds: what differs is behind `Provider`. Each may run twice at any point.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.clouds.accounts import CloudAccounts
from activities.clouds.calls import Gone, GuardedHandler
from activities.clouds.desired import Problem
from activities.clouds.in_cluster import WORK, InCluster
from activities.clouds.lifecycle import delete, ensure
from activities.clouds.lifecycle.handler import ABSENT, Found, State, Wanted
from activities.clouds.lifecycle.pace import Pace
from activities.clouds.lifecycle.threads import InThread
from activities.clouds.lifecycle.tokens import token_of
from activities.clouds.owner import Owner, owner_named, pool_name
from activities.clouds.provider import Provider, plan_of
from activities.clouds.wire import from_wire, to_wire
from activities.heartbeat import Progress, heartbeating
from activities.watching.running import until_shutdown
from api_types import names
from api_types.errors import (
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    Throttled,
    TransientError,
)
from api_types.messages.clouds import (
    IN_CLUSTER,
    LEFTOVERS_MAX,
    WAITS,
    AuditCloud,
    CloudAccount,
    CloudAudit,
    CloudObject,
    CloudObjectOrder,
    CloudObjectResult,
    CloudObjectShown,
    CloudObserved,
    CloudPlan,
    CloudProblem,
    Facts,
    Leftover,
    ObjectPhase,
    ObserveCloud,
    PlanCloud,
)
from api_types.payloads.limits import shortened
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.resources.parts.base_types import API_VERSION
from api_types.sections.clouds import ProvisionSettings
from api_types.validation.manifests import InvalidManifest, load

ResultT = TypeVar("ResultT")

_LOOKS_AT_ONCE = 4
_EVIDENCE_BYTES_MAX = 200
_PHASES: Mapping[State, ObjectPhase] = {
    State.ABSENT: "Absent",
    State.PENDING: "Creating",
    State.READY: "Ready",
    State.DIFFERS: "Differs",
    State.BROKEN: "Broken",
    State.DELETING: "Deleting",
    State.FOREIGN: "Unknown",
}
# What an attempt tells the next one in its heartbeats.
_SEEN_AT = "seenAt"
_POOL_KINDS = ("pool", "lt")


@dataclass(frozen=True)
class Patience:
    """Seconds for which an activity fails with what may recover by itself before its workflow is told.

    `dependency` is for a deletion that is refused because something else uses the object: then the workflow looks for what that is.
    `unknown` is for what an object needs and the cloud does not find: what was created just now it knows everywhere by then, so it
    may have been deleted, and the workflow, which looks at all objects, creates it again.
    """

    trouble: float = 1800.0
    dependency: float = 300.0
    unknown: float = 120.0

    def after(self, error: TransientError) -> float:
        """Give after how long the workflow is told of an error."""
        if isinstance(error, Dependency):
            return self.dependency
        return self.unknown if isinstance(error, NotYet) else self.trouble


@dataclass(frozen=True)
class CloudActivities:
    """What a CloudCluster does at its cloud, and for the objects that are in the cluster."""

    accounts: CloudAccounts
    in_cluster: InCluster
    settings: ProvisionSettings
    pace: Pace = field(default_factory=Pace)
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time

    # --- what is wanted -----------------------------------------------------------------------------------------------------------

    @activity.defn
    async def plan_cloud(self, order: PlanCloud) -> CloudPlan:
        """Say which objects are wanted, and what cannot be had.

        Raises CredentialsInvalid and PermissionDenied; InvalidInput for a manifest that is none.
        """
        _check_caller(order.account)
        cluster, classes = _read(order)

        async def work(_: "_Watch") -> CloudPlan:
            account = await self.accounts.pinned(order.account)
            provider = await self.accounts.provider(account)
            desired = await self.accounts.threads.of(account)(plan_of, provider, account, cluster, classes, order.known)
            pools = {pool_name(pool.name): pool.name for pool in cluster.spec.node_pools or ()}
            return CloudPlan(
                account=account,
                cloud_cluster=provider.cloud_cluster(account),
                objects=[
                    to_wire(each, WORK[each.kind] if each.kind in IN_CLUSTER else provider.work_class(each.kind), _pool_of(each.key, pools))
                    for each in desired.objects
                ],
                refused=[_problem(each) for each in desired.refused],
                warnings=[_problem(each) for each in desired.warnings],
                storage_class=next((each.name for each in desired.objects if each.kind == "StorageClass"), ""),
                drift_seconds=self.settings.drift_interval,
                quota_seconds=self.settings.quota_retry,
                capacity_seconds=self.settings.capacity_retry,
                parallel=self.settings.max_parallel,
                drain_seconds=self.settings.pool_drain_wait,
                rebuilds=self.settings.broken_rebuilds,
                audit_rounds=self.settings.audit_rounds,
            )

        return await self._run(order.account, work)

    # --- one object ---------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def ensure_cloud_object(self, order: CloudObjectOrder) -> CloudObjectResult:
        """Create, wait for or change an object until it is Ready; Broken or Absent are left to the workflow.

        Raises what `lifecycle.ensure` does. What may recover by itself is retried for half an hour before the workflow hears of it.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = _wanted(order)
            handler = await self._handler(provider, order.account, wanted.object.kind, watch.progressed, create=order.create)
            if handler is None:
                watch.report(f"{wanted.object.kind} {wanted.object.name}: waiting for {wanted.object.waits_for}")
                return _result(order.object.key, await self.in_cluster.ensure(order.account, wanted))
            in_thread = self.accounts.threads.of(order.account)
            try:
                return _result(order.object.key, await ensure.ensure(handler, wanted, self.pace, watch.report, in_thread))
            except Gone:
                return _result(order.object.key, ABSENT)
            finally:
                await handler.until_quiet()

        return await self._run(order.account, work)

    @activity.defn
    async def delete_cloud_object(self, order: CloudObjectOrder) -> CloudObjectResult:
        """Delete an object and wait until it is gone; one of another owner is left, with a message.

        Raises Dependency when something else has used it for some minutes, and what `lifecycle.delete` does.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = _wanted(order)
            handler = await self._handler(provider, order.account, wanted.object.kind, watch.progressed, create=False)
            if handler is None:
                return _result(order.object.key, await self.in_cluster.delete(order.account, wanted))
            try:
                return _result(order.object.key, await self._delete(handler, wanted, watch.report, self.accounts.threads.of(order.account)))
            finally:
                await handler.until_quiet()

        return await self._run(order.account, work)

    async def _delete(self, handler: GuardedHandler, wanted: Wanted, report: Callable[[str], None], in_thread: InThread) -> Found:
        """Delete; what may have been created just now, and is listed late, is looked for longer."""
        until = self.clock() + (self.pace.second_look if wanted.attempt > 1 else 0.0)
        while True:
            found = await delete.delete(handler, wanted, self.pace, report, in_thread)
            if not (found.state is State.ABSENT and found.uncertain and self.clock() < until):
                return found
            await asyncio.sleep(self.pace.second_look_every)

    # --- all objects --------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def observe_cloud(self, order: ObserveCloud) -> CloudObserved:
        """Look at all objects, and change nothing. What cannot be looked at is Unknown, with the reason.

        Raises CredentialsInvalid where the cloud refuses the credential.
        """
        _check_caller(order.account)

        async def work(_: "_Watch") -> CloudObserved:
            provider = await self.accounts.provider(order.account)
            slots = asyncio.Semaphore(_LOOKS_AT_ONCE)

            async def look(each: CloudObject) -> tuple[CloudObject, Found, str]:
                one = CloudObjectOrder(account=order.account, object=each, known=order.known)
                async with slots:
                    return each, *await self._look(provider, one)

            looks = await asyncio.gather(*map(look, order.objects))
            shown = [
                CloudObjectShown(
                    key=each.key,
                    kind=each.kind,
                    name=each.name,
                    id=found.id,
                    phase="Unknown" if problem else _phase(found),
                    message=problem or _difference(found),
                )
                for each, found, problem in looks
            ]
            return CloudObserved(objects=shown, facts={each.key: _facts(found) for each, found, _ in looks if found.facts or found.id})

        return await self._run(order.account, work)

    async def _look(self, provider: Provider, order: CloudObjectOrder) -> tuple[Found, str]:
        """Look at one object, twice where the first look may have missed it. Gives why it could not be looked at, if so."""
        wanted = _wanted(order)
        handler = await self._handler(provider, order.account, wanted.object.kind, _nothing, create=False)
        try:
            if handler is None:
                return await self.in_cluster.look(order.account, wanted), ""
            in_thread = self.accounts.threads.of(order.account)
            found = await in_thread(handler.look, wanted)
            if found.state is State.ABSENT and found.uncertain:
                await asyncio.sleep(self.pace.second_look_every)
                found = await in_thread(handler.look, wanted)
        except ModelplaneError as error:
            if handler is not None and isinstance(error, CredentialsInvalid):
                raise
            # One that may not be looked at, or a cluster that lets nobody in, hides nothing of the others: they may be the cause.
            return ABSENT, f"{error.type}: {error.message}"
        return found, "it belongs to another owner" if found.state is State.FOREIGN else ""

    @activity.defn
    async def audit_cloud(self, order: AuditCloud) -> CloudAudit:
        """List what is left of a cluster; with `sweep`, delete what it made and nothing else owns.

        What is of the inventory is left to `delete_cloud_object`.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudAudit:
            # Of a cluster that is given up before there is a plan of it, the account is not pinned yet.
            pinned = order.model_copy(update={"account": await self.accounts.pinned(order.account)})
            provider = await self.accounts.provider(pinned.account)
            in_thread = self.accounts.threads.of(pinned.account)
            found = list(await in_thread(provider.audit, pinned))
            swept = list[Leftover]()
            waits_for = ""
            for leftover in [each for each in found if order.sweep and each.ours and each.key not in order.keys]:
                if leftover.key and waits_for not in ("", leftover.kind):
                    # What an object of ours stands on is needed until that is gone; they are listed in this order.
                    continue
                watch.report(f"deleting {leftover.kind} {leftover.id}")
                try:
                    await in_thread(provider.sweep, pinned, leftover)
                except (CredentialsInvalid, Throttled):
                    raise
                except ModelplaneError as error:
                    waits_for = waits_for or (leftover.kind if leftover.key else "")
                    # One that cannot be deleted holds up none but what it stands on.
                    found[found.index(leftover)] = _stays(leftover, error)
                else:
                    swept.append(leftover)
            return _audited([each for each in found if each not in swept], swept)

        return await self._run(order.account, work)

    # --- what they share ----------------------------------------------------------------------------------------------------------

    async def _handler(
        self, provider: Provider, account: CloudAccount, kind: str, progressed: Callable[[], None], *, create: bool
    ) -> GuardedHandler | None:
        if kind in IN_CLUSTER:
            return None
        # The first use of a credential asks the cloud whose it is.
        handler = await self.accounts.threads.of(account)(provider.handler, account, kind)
        if handler is None:
            raise InvalidInput(f"{account.provider} has no objects of kind {kind!r}")
        return GuardedHandler(handler, progressed, create=create)

    async def _run(self, account: CloudAccount, work: "Callable[[_Watch], Awaitable[ResultT]]") -> ResultT:
        """Do the work with heartbeats, until the worker shuts down. A failure that goes on for long leaves the activity.

        A credential that is refused is tried once more with new clients: those that are kept may hold a token that the cloud has ended.
        """
        async with heartbeating() as send:
            watch = _Watch(self.clock, _seen_at(), send)
            watch.report("")
            renewals = self.accounts.renewals(account)
            try:
                try:
                    return await _until_shutdown(partial(work, watch))
                except CredentialsInvalid:
                    self.accounts.renew(account, renewals)
                    return await _until_shutdown(partial(work, watch))
            except TransientError as error:
                if self.clock() - watch.seen_at < self.patience.after(error):
                    raise
                raise ApplicationError(error.message, type=error.type, non_retryable=True) from None


class _Watch:
    """What an activity waits for, in its heartbeats, and when it saw last that this goes on."""

    def __init__(self, clock: Callable[[], float], seen_at: float, send: Callable[[Progress], None]) -> None:
        self._clock = clock
        self._send = send
        self.seen_at = seen_at

    def report(self, text: str) -> None:
        """Say what is waited for."""
        self._send({WAITS: text, _SEEN_AT: self.seen_at})

    def progressed(self) -> None:
        """Note that it goes on; in any thread."""
        self.seen_at = self._clock()


def _nothing() -> None:
    """A look is no work that could go on."""


def _check_caller(account: CloudAccount) -> None:
    """Check that an order is that of the CloudCluster that asks. Raises PermissionDenied."""
    asked_by = activity.info().workflow_id or ""
    if asked_by != names.cloud_cluster_id(account.cluster, account.cluster_uid) or not names.cluster_of_cloud(asked_by)[0]:
        raise PermissionDenied(f"workflow {asked_by} may not order what is of cluster {account.cluster}")


def _seen_at() -> float:
    """Give when an attempt saw last what it works on, in seconds since 1970; without one, when the work was ordered.

    It is in the last heartbeat of the attempt before. What that one sent just before it failed may be lost, so it says what went well.
    """
    details = activity.info().heartbeat_details
    last = details[-1] if details else None
    seen_at = last.get(_SEEN_AT) if isinstance(last, dict) else None
    return float(seen_at) if isinstance(seen_at, int | float) else activity.info().scheduled_time.timestamp()


async def _until_shutdown(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Do the work; when the worker shuts down, stop and raise a TransientError, so that another worker goes on."""
    done = asyncio.ensure_future(work())
    stop = asyncio.create_task(until_shutdown())
    try:
        await asyncio.wait((done, stop), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            done.cancel()
            await asyncio.gather(done, return_exceptions=True)
            await stop
        return await done
    finally:
        stop.cancel()
        done.cancel()
        await asyncio.gather(stop, done, return_exceptions=True)


def _read(order: PlanCloud) -> tuple[InferenceCluster, dict[str, InferenceClass]]:
    """Read the manifests of an order. Raises InvalidInput."""
    spec = {"spec": order.manifest.get("spec", {})}
    metadata = {"name": order.account.cluster, "uid": order.account.cluster_uid}
    try:
        cluster = load({"apiVersion": API_VERSION, "kind": "InferenceCluster", "metadata": metadata, **spec})
        classes = {
            name: load({"apiVersion": API_VERSION, "kind": "InferenceClass", "metadata": {"name": name}, "spec": found})
            for name, found in order.classes.items()
        }
    except (ValidationError, InvalidManifest, ValueError) as error:
        raise InvalidInput(f"the manifest of cluster {order.account.cluster} cannot be read: {error}") from None
    return _as(InferenceCluster, cluster), {name: _as(InferenceClass, found) for name, found in classes.items()}


ModelT = TypeVar("ModelT")


def _as(model: type[ModelT], found: Any) -> ModelT:
    if not isinstance(found, model):
        raise InvalidInput(f"not a manifest of {model.__name__}")
    return found


def _pool_of(key: str, pools: Mapping[str, str]) -> str:
    """Give the pool that an object belongs to, as users wrote it; empty for one of the cluster."""
    kind, _, name = key.partition("/")
    return pools.get(name, "") if kind in _POOL_KINDS else ""


def _problem(each: Problem) -> CloudProblem:
    return CloudProblem(reason=each.reason, at=each.at, text=each.text)


def _wanted(order: CloudObjectOrder) -> Wanted:
    """Give what the lifecycle works on. Raises InvalidInput for an object that cannot be read."""
    try:
        desired = from_wire(order.object)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    owner = _owner(order.account)
    token = token_of(owner, order.object.key, order.object.digest, order.epoch)
    attempt = activity.info().attempt + (1 if order.again else 0)
    return Wanted(owner, desired, order.known, token, order.epoch, attempt)


def _owner(account: CloudAccount) -> Owner:
    if not account.installation:
        raise InvalidInput(f"cluster {account.cluster} has no installation yet: plan first")
    return owner_named(account.installation, account.cluster, account.cluster_uid)


def _stays(leftover: Leftover, error: ModelplaneError) -> Leftover:
    """Give something with why it could not be deleted."""
    return leftover.model_copy(update={"evidence": f"{error.type}: {shortened(error.message, _EVIDENCE_BYTES_MAX)}; {leftover.evidence}"})


def _audited(left: list[Leftover], swept: list[Leftover]) -> CloudAudit:
    """Give what was found in a size that can be carried, what is ours first: whoever may write at the cloud decides how much it is."""
    ordered = sorted(left, key=lambda each: not each.ours)
    return CloudAudit(
        leftovers=[_short(each) for each in ordered[:LEFTOVERS_MAX]],
        swept=[_short(each) for each in swept[:LEFTOVERS_MAX]],
        more=len(ordered[LEFTOVERS_MAX:]),
    )


def _short(leftover: Leftover) -> Leftover:
    return leftover.model_copy(update={"evidence": shortened(leftover.evidence, _EVIDENCE_BYTES_MAX)})


def _phase(found: Found) -> ObjectPhase:
    """Give the phase of an object that was looked at: with duplicates, work on it deletes these."""
    if found.state is State.ABSENT and found.cause is not None:
        return "Broken"
    return "Differs" if found.state is State.READY and found.duplicates else _PHASES[found.state]


def _difference(found: Found) -> str:
    duplicates = f"it is there more than once: {', '.join(found.duplicates)}" if found.duplicates else ""
    return "; ".join(filter(None, (found.reason or ", ".join((*found.replaces, *found.changes)), duplicates)))


def _result(key: str, found: Found) -> CloudObjectResult:
    if found.state is State.FOREIGN:
        return CloudObjectResult(key=key, phase="Absent", message=f"it belongs to another owner ({found.reason}) and was left as it is")
    if found.state is State.ABSENT:
        return CloudObjectResult(key=key, phase="Absent")
    cause = found.cause.__name__ if found.cause else ""
    return CloudObjectResult(key=key, phase=_PHASES[found.state], facts=_facts(found), cause=cause, message=found.reason)


def _facts(found: Found) -> Facts:
    return {**found.facts, **({"id": found.id} if found.id else {})}
