"""Activities of a CloudCluster: plan, ensure, delete, observe and audit objects.

The activities are the same for all clouds. `Provider` encapsulates the differences.
Each activity is idempotent and may be interrupted at any point.
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
from activities.clouds.calls import GuardedHandler, ObjectGone
from activities.clouds.desired import Desired, PlanProblem
from activities.clouds.in_cluster import WORK, InCluster
from activities.clouds.lifecycle import delete, ensure
from activities.clouds.lifecycle.handler import (
    ABSENT,
    CloudObservation,
    ObjectWork,
    State,
)
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.lifecycle.threads import InThread
from activities.clouds.lifecycle.tokens import token_of
from activities.clouds.owner import ClusterOwner, owner_named, pool_name
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
    CLUSTER_KEY,
    IN_CLUSTER,
    LEFTOVERS_MAX,
    STORAGE_CLASS,
    WAITS,
    AuditCloud,
    CloudAccount,
    CloudAudit,
    CloudHealth,
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
# The key in the heartbeats by which an attempt passes its last progress to the next
# attempt.
_SEEN_AT = "seenAt"
_POOL_KINDS = ("pool", "lt")


@dataclass(frozen=True)
class Patience:
    """Seconds for which an activity retries transient errors by itself.

    After that, its workflow gets the error. `dependency` applies to a deletion that is
    rejected because another object uses this one. The workflow then searches for the
    other object. `unknown` applies to a dependency that the cloud does not find. After
    that time a new dependency would be visible everywhere at the cloud, so it may have
    been deleted. The workflow observes all objects and creates it again.
    """

    trouble: float = 1800.0
    dependency: float = 300.0
    unknown: float = 120.0

    def after(self, error: TransientError) -> float:
        """Return after how many seconds the workflow gets an error."""
        if isinstance(error, Dependency):
            return self.dependency
        return self.unknown if isinstance(error, NotYet) else self.trouble


@dataclass(frozen=True)
class CloudActivities:
    """Activities of a CloudCluster on objects at its cloud and in its cluster."""

    accounts: CloudAccounts
    in_cluster: InCluster
    settings: ProvisionSettings
    pace: PollPace = field(default_factory=PollPace)
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time

    # Desired objects

    @activity.defn
    async def plan_cloud(self, order: PlanCloud) -> CloudPlan:
        """Return the desired objects, and the problems of refused objects.

        Raises CredentialsInvalid, PermissionDenied, and InvalidInput for an invalid
        manifest.
        """
        _check_caller(order.account)
        cluster, classes = _read(order)

        async def work(_: "_Watch") -> CloudPlan:
            account = await self.accounts.pinned(order.account)
            provider = await self.accounts.provider(account)
            desired = await self.accounts.threads.of(account)(
                plan_of, provider, account, cluster, classes, order.known
            )
            return self._plan(provider, account, cluster, desired)

        return await self._run(order.account, work)

    def _plan(
        self,
        provider: Provider,
        account: CloudAccount,
        cluster: InferenceCluster,
        desired: Desired,
    ) -> CloudPlan:
        pools = {
            pool_name(pool.name): pool.name for pool in cluster.spec.node_pools or ()
        }
        objects = list[CloudObject]()
        for each in desired.objects:
            if each.kind in IN_CLUSTER:
                work = WORK[each.kind]
            else:
                work = provider.work_class(each.kind)
            objects.append(to_wire(each, work, _pool_of(each.key, pools)))
        classes = [each.name for each in desired.objects if each.kind == STORAGE_CLASS]
        return CloudPlan(
            account=account,
            cloud_cluster=provider.cloud_cluster(account),
            objects=objects,
            refused=[_problem(each) for each in desired.refused],
            warnings=[_problem(each) for each in desired.warnings],
            storage_class=classes[0] if classes else "",
            drift_seconds=self.settings.drift_interval,
            quota_seconds=self.settings.quota_retry,
            capacity_seconds=self.settings.capacity_retry,
            parallel=self.settings.max_parallel,
            drain_seconds=self.settings.pool_drain_wait,
            rebuilds=self.settings.broken_rebuilds,
            audit_rounds=self.settings.audit_rounds,
        )

    # One object

    @activity.defn
    async def ensure_cloud_object(self, order: CloudObjectOrder) -> CloudObjectResult:
        """Create, wait for or change an object until it is Ready.

        A Broken or Absent object is returned for the workflow to decide. Raises the
        errors of `lifecycle.ensure`. The workflow gets transient errors after half an
        hour.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = _wanted(order)
            handler = await self._handler(
                provider,
                order.account,
                wanted.object.kind,
                watch.progressed,
                create=order.create,
            )
            if handler is None:
                watch.report(
                    f"{wanted.object.kind} {wanted.object.name}: waiting for "
                    f"{wanted.object.waits_for}"
                )
                found = await self.in_cluster.ensure(order.account, wanted)
                return _result(order.object.key, found)
            in_thread = self.accounts.threads.of(order.account)
            try:
                found = await ensure.ensure(
                    handler, wanted, self.pace, watch.report, in_thread
                )
                return _result(order.object.key, found)
            except ObjectGone:
                return _result(order.object.key, ABSENT)
            finally:
                await handler.until_quiet()

        return await self._run(order.account, work)

    @activity.defn
    async def delete_cloud_object(self, order: CloudObjectOrder) -> CloudObjectResult:
        """Delete an object, and wait until it is gone.

        An object of another owner is kept, with a message. Raises Dependency after
        another object has used it for some minutes, and the errors of
        `lifecycle.delete`.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = _wanted(order)
            handler = await self._handler(
                provider,
                order.account,
                wanted.object.kind,
                watch.progressed,
                create=False,
            )
            if handler is None:
                found = await self.in_cluster.delete(order.account, wanted)
                return _result(order.object.key, found)
            in_thread = self.accounts.threads.of(order.account)
            try:
                found = await self._delete(handler, wanted, watch.report, in_thread)
                return _result(order.object.key, found)
            finally:
                await handler.until_quiet()

        return await self._run(order.account, work)

    async def _delete(
        self,
        handler: GuardedHandler,
        wanted: ObjectWork,
        report: Callable[[str], None],
        in_thread: InThread,
    ) -> CloudObservation:
        """Delete an object.

        If the object was just created, search longer, because clouds list new objects
        late.
        """
        until = self.clock() + (self.pace.second_look if wanted.attempt > 1 else 0.0)
        while True:
            found = await delete.delete(handler, wanted, self.pace, report, in_thread)
            if not (
                found.state is State.ABSENT and found.uncertain and self.clock() < until
            ):
                return found
            await asyncio.sleep(self.pace.second_look_every)

    # All objects

    @activity.defn
    async def observe_cloud(self, order: ObserveCloud) -> CloudObserved:
        """Observe all objects without changing any.

        An object that cannot be observed is Unknown, with the reason. Raises
        CredentialsInvalid if the cloud rejects the credential.
        """
        _check_caller(order.account)

        async def work(_: "_Watch") -> CloudObserved:
            provider = await self.accounts.provider(order.account)
            slots = asyncio.Semaphore(_LOOKS_AT_ONCE)

            async def look(
                each: CloudObject,
            ) -> tuple[CloudObject, CloudObservation, str]:
                one = CloudObjectOrder(
                    account=order.account, object=each, known=order.known
                )
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
                    cause=_cause(found),
                    health=_health(found),
                )
                for each, found, problem in looks
            ]
            return CloudObserved(
                objects=shown,
                facts={
                    each.key: _facts(found)
                    for each, found, _ in looks
                    if found.facts or found.id
                },
            )

        return await self._run(order.account, work)

    async def _look(
        self, provider: Provider, order: CloudObjectOrder
    ) -> tuple[CloudObservation, str]:
        """Observe one object, twice if the first observation may have missed it.

        The second value says why it could not be observed.
        """
        wanted = _wanted(order)
        handler = await self._handler(
            provider, order.account, wanted.object.kind, _nothing, create=False
        )
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
            # A missing permission or an unreachable cluster must not hide the other
            # objects, which may be the cause.
            return ABSENT, f"{error.type}: {error.message}"
        if found.unmarked:
            return found, found.unmarked
        if found.state is State.FOREIGN:
            return found, f"it belongs to another owner ({found.reason})"
        return found, ""

    @activity.defn
    async def audit_cloud(self, order: AuditCloud) -> CloudAudit:
        """List the leftovers of a cluster, and with `sweep` delete the cluster's own.

        `delete_cloud_object` deletes the objects of the inventory. Load balancers and
        disks, which have no key, are deleted only after the control plane: its
        controllers would make them again.
        """
        _check_caller(order.account)

        async def work(watch: "_Watch") -> CloudAudit:
            # The account of a cluster that is abandoned before its first plan is not
            # pinned yet.
            pinned = order.model_copy(
                update={"account": await self.accounts.pinned(order.account)}
            )
            provider = await self.accounts.provider(pinned.account)
            in_thread = self.accounts.threads.of(pinned.account)
            found = list(await in_thread(provider.audit, pinned))
            swept = list[Leftover]()
            waits_for = ""
            ours = list[Leftover]()
            if order.sweep:
                gone = all(each.key != CLUSTER_KEY for each in found)
                ours = [
                    each
                    for each in found
                    if each.ours
                    and not each.unmarked
                    and each.key not in order.keys
                    and (each.key or gone)
                ]
            for leftover in ours:
                if leftover.key and waits_for not in ("", leftover.kind):
                    # Leftovers with a key are listed in the order of deletion. The
                    # kinds after this one are needed until it is gone.
                    continue
                watch.report(f"deleting {leftover.kind} {leftover.id}")
                try:
                    await in_thread(provider.sweep, pinned, leftover)
                except (CredentialsInvalid, Throttled):
                    raise
                except ModelplaneError as error:
                    waits_for = waits_for or (leftover.kind if leftover.key else "")
                    # A leftover that cannot be deleted blocks only the kinds that it
                    # depends on.
                    found[found.index(leftover)] = _stays(leftover, error)
                else:
                    swept.append(leftover)
            return _audited([each for each in found if each not in swept], swept)

        return await self._run(order.account, work)

    # Shared steps

    async def _handler(
        self,
        provider: Provider,
        account: CloudAccount,
        kind: str,
        progressed: Callable[[], None],
        *,
        create: bool,
    ) -> GuardedHandler | None:
        if kind in IN_CLUSTER:
            return None
        # The first use of a credential reads its identity from the cloud.
        handler = await self.accounts.threads.of(account)(
            provider.handler, account, kind
        )
        if handler is None:
            raise InvalidInput(f"{account.provider} has no objects of kind {kind!r}")
        return GuardedHandler(handler, progressed, create=create)

    async def _run(
        self, account: CloudAccount, work: "Callable[[_Watch], Awaitable[ResultT]]"
    ) -> ResultT:
        """Run the work with heartbeats until the worker shuts down.

        A transient failure becomes final when it lasts too long. A rejected credential
        is tried once more with new clients, because the cached ones may hold a token
        that the cloud revoked.
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
                raise ApplicationError(
                    error.message, type=error.type, non_retryable=True
                ) from None


class _Watch:
    """The progress of an activity: its heartbeats, and when it last progressed."""

    def __init__(
        self,
        clock: Callable[[], float],
        seen_at: float,
        send: Callable[[Progress], None],
    ) -> None:
        self._clock = clock
        self._send = send
        self.seen_at = seen_at

    def report(self, text: str) -> None:
        """Send a heartbeat that states what the activity waits for."""
        self._send({WAITS: text, _SEEN_AT: self.seen_at})

    def progressed(self) -> None:
        """Record progress. May be called in any thread."""
        self.seen_at = self._clock()


def _nothing() -> None:
    """Do nothing: an observation has no progress."""


def _check_caller(account: CloudAccount) -> None:
    """Raise PermissionDenied unless the CloudCluster of this account is the caller."""
    asked_by = activity.info().workflow_id or ""
    if (
        asked_by != names.cloud_cluster_id(account.cluster, account.cluster_uid)
        or not names.cluster_of_cloud(asked_by)[0]
    ):
        raise PermissionDenied(
            f"workflow {asked_by} may not order work on objects of cluster "
            f"{account.cluster}; only its CloudCluster workflow may"
        )


def _seen_at() -> float:
    """Return when the work last progressed, in seconds since 1970.

    The last heartbeat of the previous attempt contains the time. Without a heartbeat it
    is the time at which the activity was scheduled. Only heartbeats that reported
    progress count, because the last heartbeat before a failure may be lost.
    """
    details = activity.info().heartbeat_details
    last = details[-1] if details else None
    seen_at = last.get(_SEEN_AT) if isinstance(last, dict) else None
    return (
        float(seen_at)
        if isinstance(seen_at, int | float)
        else activity.info().scheduled_time.timestamp()
    )


async def _until_shutdown(work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run the work.

    When the worker shuts down, cancel it and raise a TransientError.
    """
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
    """Parse the manifests of an order. Raises InvalidInput."""
    spec = {"spec": order.manifest.get("spec", {})}
    metadata = {"name": order.account.cluster, "uid": order.account.cluster_uid}
    try:
        cluster = load(
            {
                "apiVersion": API_VERSION,
                "kind": "InferenceCluster",
                "metadata": metadata,
                **spec,
            }
        )
        classes = {
            name: load(
                {
                    "apiVersion": API_VERSION,
                    "kind": "InferenceClass",
                    "metadata": {"name": name},
                    "spec": found,
                }
            )
            for name, found in order.classes.items()
        }
    except (ValidationError, InvalidManifest, ValueError) as error:
        raise InvalidInput(
            f"the manifest of cluster {order.account.cluster} is invalid: {error}"
        ) from None
    return _as(InferenceCluster, cluster), {
        name: _as(InferenceClass, found) for name, found in classes.items()
    }


ModelT = TypeVar("ModelT")


def _as(model: type[ModelT], found: Any) -> ModelT:
    if not isinstance(found, model):
        raise InvalidInput(f"not a manifest of {model.__name__}")
    return found


def _pool_of(key: str, pools: Mapping[str, str]) -> str:
    """Return the name in the spec of an object's pool, or "" for a cluster's object."""
    kind, _, name = key.partition("/")
    return pools.get(name, "") if kind in _POOL_KINDS else ""


def _problem(each: PlanProblem) -> CloudProblem:
    return CloudProblem(reason=each.reason, at=each.at, text=each.text)


def _wanted(order: CloudObjectOrder) -> ObjectWork:
    """Return the lifecycle's input for an order.

    Raises InvalidInput if it is malformed.
    """
    try:
        desired = from_wire(order.object)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    owner = _owner(order.account)
    token = token_of(owner, order.object.key, order.object.digest, order.epoch)
    attempt = activity.info().attempt + (1 if order.again else 0)
    return ObjectWork(owner, desired, order.known, token, order.epoch, attempt)


def _owner(account: CloudAccount) -> ClusterOwner:
    if not account.installation:
        raise InvalidInput(
            f"the account of cluster {account.cluster} names no installation: run "
            "plan_cloud first"
        )
    return owner_named(account.installation, account.cluster, account.cluster_uid)


def _stays(leftover: Leftover, error: ModelplaneError) -> Leftover:
    """Return a leftover with the reason why it could not be deleted."""
    problem = f"{error.type}: {shortened(error.message, _EVIDENCE_BYTES_MAX)}"
    return leftover.model_copy(update={"evidence": f"{problem}; {leftover.evidence}"})


def _audited(left: list[Leftover], swept: list[Leftover]) -> CloudAudit:
    """Return the leftovers in bounded size, the cluster's own first.

    The size is bounded because other users of the cloud account control how many there
    are.
    """
    ordered = sorted(left, key=lambda each: not each.ours)
    return CloudAudit(
        leftovers=[_short(each) for each in ordered[:LEFTOVERS_MAX]],
        swept=[_short(each) for each in swept[:LEFTOVERS_MAX]],
        more=len(ordered[LEFTOVERS_MAX:]),
    )


def _short(leftover: Leftover) -> Leftover:
    return leftover.model_copy(
        update={"evidence": shortened(leftover.evidence, _EVIDENCE_BYTES_MAX)}
    )


def _phase(found: CloudObservation) -> ObjectPhase:
    """Return the phase of an object.

    An object with duplicates is Differs, so that they are deleted.
    """
    if found.state is State.ABSENT and found.cause is not None:
        return "Broken"
    return (
        "Differs"
        if found.state is State.READY and found.duplicates
        else _PHASES[found.state]
    )


def _difference(found: CloudObservation) -> str:
    parts = [found.reason or ", ".join((*found.replaces, *found.changes))]
    if found.duplicates:
        parts.append(f"it exists more than once: {', '.join(found.duplicates)}")
    return "; ".join(filter(None, parts))


def _result(key: str, found: CloudObservation) -> CloudObjectResult:
    if found.state is State.FOREIGN:
        return CloudObjectResult(
            key=key,
            phase="Absent",
            message=f"it belongs to another owner ({found.reason}) and was not changed",
        )
    if found.state is State.ABSENT:
        return CloudObjectResult(key=key, phase="Absent")
    return CloudObjectResult(
        key=key,
        phase=_PHASES[found.state],
        facts=_facts(found),
        cause=_cause(found),
        message=found.reason,
        health=_health(found),
    )


def _cause(found: CloudObservation) -> str:
    return found.cause.__name__ if found.cause else ""


def _health(found: CloudObservation) -> CloudHealth | None:
    issue = found.health
    if issue is None:
        return None
    return CloudHealth(
        error=issue.error.__name__,
        code=issue.code,
        text=issue.text,
        lacks_nodes=issue.lacks_nodes,
    )


def _facts(found: CloudObservation) -> Facts:
    facts = dict(found.facts)
    if found.id:
        facts["id"] = found.id
    return facts
