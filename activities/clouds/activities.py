"""Activities of a CloudCluster: plan, ensure, delete, observe and audit objects.

The activities are the same for all clouds. `Provider` encapsulates the differences.
Each activity is idempotent and may be interrupted at any point.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from temporalio import activity

from activities.clouds.accounts import CloudAccounts
from activities.clouds.calls import GuardedHandler, ObjectGone
from activities.clouds.desired.owner import pool_name
from activities.clouds.desired.plan import Desired
from activities.clouds.desired.wire import to_wire
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
from activities.clouds.orders import check_caller, read_manifests, work_of
from activities.clouds.patience import Patience, WorkProgress, run_with_patience
from activities.clouds.provider import Provider, plan_of
from activities.clouds.results import (
    audited,
    cloud_problem,
    facts_of,
    result_of,
    shown,
    stays,
)
from api_types.errors import (
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    Throttled,
)
from api_types.messages.clouds import (
    CLUSTER_KEY,
    IN_CLUSTER,
    STORAGE_CLASS,
    AuditCloud,
    CloudAccount,
    CloudAudit,
    CloudObject,
    CloudObjectOrder,
    CloudObjectResult,
    CloudObserved,
    CloudPlan,
    Leftover,
    ObserveCloud,
    PlanCloud,
)
from api_types.resources.inference_cluster import InferenceCluster
from api_types.sections.clouds import ProvisionSettings

ResultT = TypeVar("ResultT")

_LOOKS_AT_ONCE = 4
_POOL_KINDS = ("pool", "lt")


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
        check_caller(order.account)
        cluster, classes = read_manifests(order)

        async def work(_: WorkProgress) -> CloudPlan:
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
            refused=[cloud_problem(each) for each in desired.refused],
            warnings=[cloud_problem(each) for each in desired.warnings],
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
        check_caller(order.account)

        async def work(progress: WorkProgress) -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = work_of(order)
            handler = await self._handler(
                provider,
                order.account,
                wanted.object.kind,
                progress.progressed,
                create=order.create,
            )
            if handler is None:
                progress.report(
                    f"{wanted.object.kind} {wanted.object.name}: waiting for "
                    f"{wanted.object.waits_for}"
                )
                found = await self.in_cluster.ensure(order.account, wanted)
                return result_of(order.object.key, found)
            in_thread = self.accounts.threads.of(order.account)
            try:
                found = await ensure.ensure(
                    handler, wanted, self.pace, progress.report, in_thread
                )
                return result_of(order.object.key, found)
            except ObjectGone:
                return result_of(order.object.key, ABSENT)
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
        check_caller(order.account)

        async def work(progress: WorkProgress) -> CloudObjectResult:
            provider = await self.accounts.provider(order.account)
            wanted = work_of(order)
            handler = await self._handler(
                provider,
                order.account,
                wanted.object.kind,
                progress.progressed,
                create=False,
            )
            if handler is None:
                found = await self.in_cluster.delete(order.account, wanted)
                return result_of(order.object.key, found)
            in_thread = self.accounts.threads.of(order.account)
            try:
                found = await self._delete(handler, wanted, progress.report, in_thread)
                return result_of(order.object.key, found)
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
        check_caller(order.account)

        async def work(_: WorkProgress) -> CloudObserved:
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
            return CloudObserved(
                objects=[shown(each, found, problem) for each, found, problem in looks],
                facts={
                    each.key: facts_of(found)
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
        wanted = work_of(order)
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
        check_caller(order.account)

        async def work(progress: WorkProgress) -> CloudAudit:
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
                progress.report(f"deleting {leftover.kind} {leftover.id}")
                try:
                    await in_thread(provider.sweep, pinned, leftover)
                except (CredentialsInvalid, Throttled):
                    raise
                except ModelplaneError as error:
                    waits_for = waits_for or (leftover.kind if leftover.key else "")
                    # A leftover that cannot be deleted blocks only the kinds that it
                    # depends on.
                    found[found.index(leftover)] = stays(leftover, error)
                else:
                    swept.append(leftover)
            return audited([each for each in found if each not in swept], swept)

        return await self._run(order.account, work)

    # Shared steps

    async def _run(
        self, account: CloudAccount, work: Callable[[WorkProgress], Awaitable[ResultT]]
    ) -> ResultT:
        return await run_with_patience(
            work, account, self.accounts, self.patience, self.clock
        )

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


def _nothing() -> None:
    """Do nothing: an observation has no progress."""


def _pool_of(key: str, pools: Mapping[str, str]) -> str:
    """Return the name in the spec of an object's pool, or "" for a cluster's object."""
    kind, _, name = key.partition("/")
    return pools.get(name, "") if kind in _POOL_KINDS else ""
