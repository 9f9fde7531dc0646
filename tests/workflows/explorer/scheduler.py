"""The FleetScheduler of an exploration.

Its real cache, inbox, controller and rebuild, driven one step at a time.
"""

import logging
import uuid
from collections.abc import Generator, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from temporalio import workflow

from api_types.messages.delivery import EntityRef
from api_types.messages.scheduling import Resync
from api_types.messages.signals import FleetSchedulerSignals, ReportingSignals
from api_types.names import FLEET_SCHEDULER_ID
from api_types.payloads.packing import pack, unpack
from tests.workflows.explorer.world import Node, World
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import (
    PackedFleet,
    PackPage,
    in_payloads,
    pack_cache,
)
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import (
    ReceivedSignal,
    SchedulerState,
    SecondPayload,
)
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.decide_activity import DecideBatch, Decided, decide_batch
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.orders import Announce, Order, SendSchedulerSignals
from workflows.fleet_scheduler.rebuild.accounts import Accounts, cluster_of
from workflows.fleet_scheduler.rebuild.activities import (
    AccountsPage,
    EntityPage,
    ListEntities,
    ReadAccounts,
)
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.fleet_scheduler.rebuild.lost_state import LostState, continuation
from workflows.fleet_scheduler.rebuild.survey import Rebuild
from workflows.fleet_scheduler.rebuild.unresponsive import MissingAccounts

LOG = logging.getLogger("explorer.scheduler")
LOG.setLevel(logging.CRITICAL)

Steps = Iterator[None]


class Call:
    """An activity that a coroutine waits for."""

    def __init__(self, argument: Any) -> None:
        self.argument = argument

    def __await__(self) -> Generator["Call", Any, Any]:
        return (yield self)


class SchedulerNode(Node):
    def __init__(
        self, world: World, policy: dict[str, Any], lost: LostState | None = None
    ) -> None:
        """Start a scheduler.

        `lost` is the state of the scheduler before it, if it can be read.
        """
        super().__init__(world, FLEET_SCHEDULER_ID)
        self.policy = policy
        self.sleeps_until = 0
        self.receivers = {name: self._receiver(name) for name in _SIGNALS}
        following, _ = continuation(lost or LostState(), (), world.ms)
        self.open(following or SchedulerState(policy=policy))
        self.steps: Steps = self._run(first=following is None)

    def open(self, state: SchedulerState) -> None:
        """Start a run of the workflow with a state."""
        self.state = state
        self.cache = SchedulerCache(state, self.world.now_ms)
        while self.cache.parts_left:
            self.cache.read_part()
        self.inbox = Inbox(self.cache, LOG)
        self.controller = SchedulerController(self.cache, self.inbox, LOG)
        self.adoption = AccountAdoption(self.cache, self.inbox, LOG)
        self.rebuild = Rebuild(self.cache, self.adoption)
        self.missing = MissingAccounts(state, self.adoption)
        self.run_id = uuid.UUID(int=self.world.random.getrandbits(128)).hex
        self.waiting = False
        self.asked_at = 0
        self.omitted: set[str] = set()
        cache_registry.register(self.run_id, self.cache)

    def _receiver(self, name: str) -> Any:
        return lambda payload: self.state.inbox.append(ReceivedSignal(name, payload))

    # As the workflow

    def is_ready(self) -> bool:
        return self.world.ms >= self.sleeps_until and (
            not self.waiting or self._has_work()
        )

    def _has_work(self) -> bool:
        now = self.world.ms
        timer = self.wakes_at()
        return bool(
            self.state.inbox
            or self.state.queue
            or self.missing.arrived
            or (timer is not None and timer <= now)
        )

    def wakes_at(self) -> int | None:
        now = self.world.ms
        if now < self.sleeps_until:
            return self.sleeps_until
        delays = [
            delay
            for delay in (self.controller.delay(), self.cache.verification.delay(now))
            if delay is not None
        ]
        wakes = [now + int(delay.total_seconds() * 1000) for delay in delays]
        if self.state.unresponsive and not self.state.survey:
            wakes.append(self.asked_at + 5_000)
        return min(wakes, default=None)

    def step(self) -> None:
        self.handle()
        self._check_doubts()
        self._ask_missing()
        next(self.steps)

    def account(self) -> Any:
        return self.controller.handover().wire()

    def knows_all(self) -> bool:
        if not self.state.epoch:
            return False
        return self.state.survey is None and not self.state.unresponsive

    def _run(self, *, first: bool) -> Steps:
        if first or self.state.rebuild:
            self.rebuild.begin()
        elif self.state.takeover is not None and not self.state.takeover.begun:
            self.adoption.begin_takeover(self.state.takeover)
        yield from self._rebuild()
        while True:
            self.waiting = True
            yield
            while not self._has_work():
                yield
            self.waiting = False
            while self.inbox.read():
                yield
            self.missing.adopt()
            if self.state.rebuild:
                self.world.note(
                    "another scheduler came later than the state that was taken over"
                )
                self.rebuild.begin()
                yield from self._rebuild()
                continue
            yield from self._carry_out(self.controller.due())
            self.missing.settle()
            while self.state.queue:
                batch = self.controller.next_batch()
                decided = self._decide(batch.requests)
                yield
                yield from self._carry_out(self.controller.decided(batch, decided))
                self.controller.in_hand = []
            # Packing the fleet takes longer than some hundred steps.
            if self.world.happens(self.world.chances.continued / 10):
                self.world.note("continue as new fleetscheduler/default")
                self._continue_as_new()
                yield from self._rebuild()

    def _rebuild(self) -> Steps:
        """Drive the rebuild's own coroutine."""
        continued = SimpleNamespace(is_continue_as_new_suggested=lambda: False)
        running = self.rebuild.run()
        result: Any = None
        while True:
            with (
                patch.object(workflow, "info", lambda: continued),
                patch.object(
                    workflow,
                    "execute_activity",
                    lambda _, argument, **__: Call(argument),
                ),
                patch.object(workflow, "sleep", lambda delay, **__: Call(delay)),
            ):
                try:
                    call = running.send(result)
                except StopIteration:
                    return
            yield
            if isinstance(call.argument, timedelta):
                self.sleeps_until = self.world.ms + int(
                    call.argument.total_seconds() * 1000
                )
                while self.world.ms < self.sleeps_until:
                    yield
                result = None
                continue
            result = (
                self._list(call.argument)
                if isinstance(call.argument, ListEntities)
                else self._read(call.argument)
            )
            yield

    def _decide(self, requests: list[Any]) -> Decided:
        if not requests:
            return Decided()
        batch = DecideBatch(
            run_id=self.run_id,
            version=self.cache.fleet.version,
            now=self.cache.now(),
            requests=requests,
        )
        decided = decide_batch(batch)
        self.cache.queue.put_back(
            [place for place in requests if place.request_id in decided.deferred]
        )
        return decided

    def _carry_out(self, orders: list[Order]) -> Steps:
        for order in orders:
            yield
            match order:
                case SendSchedulerSignals(signals):
                    missing = self.world.send(signals)
                    yield
                    self.controller.sent(order, missing)
                case Announce(signal):
                    kinds = signal.kinds
                    listed = [
                        each
                        for each in self.world.listed(kinds)
                        if not self.world.happens(self.world.chances.unlisted)
                    ]
                    for each in listed:
                        self.world.signal(
                            ReportingSignals.RESYNC.request(
                                EntityRef(each), Resync(epoch=self.state.epoch)
                            )
                        )
                    yield

    def _continue_as_new(self) -> None:
        packed = pack_cache(
            PackPage(run_id=self.run_id, version=self.cache.fleet.version)
        )
        first, second = in_payloads(
            self.cache.carried(
                PackedFleet.model_validate_json(packed.model_dump_json(by_alias=True))
            )
        )
        state = SchedulerState.model_validate_json(first.model_dump_json(by_alias=True))
        state.take_over(
            SecondPayload.model_validate_json(second.model_dump_json(by_alias=True))
        )
        self.open(state)

    # Accounts

    def _list(self, wanted: ListEntities) -> EntityPage:
        listed = self.world.listed(wanted.kinds)
        # A listing omits some workflows. The next one of a rebuild, seconds later,
        # omits others.
        omitted = {
            each
            for each in listed
            if each not in self.omitted
            and self.world.happens(self.world.chances.unlisted)
        }
        too_new = set(self.world.running_of(wanted.kinds)) - set(listed)
        self.omitted = (
            {each for each in self.omitted if each not in listed} | omitted | too_new
        )
        listed = [each for each in listed if each not in omitted]
        return EntityPage(entities=pack(dict.fromkeys(listed, "")))

    def _read(self, wanted: ReadAccounts) -> AccountsPage:
        return self._page(list(unpack(wanted.entities)), wanted.epoch)

    def _page(self, ids: list[str], epoch: int) -> AccountsPage:
        accounts, answered, silent = Accounts(), [], {}
        untold = (
            ("modelreplica/", "inferencecluster/")
            if self.state.takeover
            else ("modelreplica/",)
        )
        for each in ids:
            if not each.startswith(untold):
                self.world.signal(
                    ReportingSignals.RESYNC.request(
                        EntityRef(each), Resync(epoch=epoch)
                    )
                )
            account = self.world.query(each)
            if account is None and each in self.world.running:
                silent[each] = cluster_of(each)
                continue
            if account is not None:
                accounts.add(each, account)
            answered.append(each)
        return AccountsPage(
            accounts=accounts.packed(), answered=answered, unresponsive=silent
        )

    def _ask_missing(self) -> None:
        """Query the silent entities again, besides the decisions."""
        if (
            self.state.survey
            or not self.state.unresponsive
            or self.world.ms < self.asked_at + 5_000
        ):
            return
        self.asked_at, self.state.asked_again = self.world.ms, []
        page = self._page(
            [each for each in self.state.unresponsive if each not in self.state.untold],
            self.state.epoch,
        )
        if page.answered:
            self.missing._arrived.append((self.cache.messages_read, page))

    def _check_doubts(self) -> None:
        verification = self.cache.verification
        doubts = verification.due(self.world.ms)
        if not doubts or self.state.survey:
            return
        answers = {
            each.workflow_id: account
            for each in doubts
            if (account := self.world.query(each.workflow_id)) is not None
        }
        silent = [
            each.workflow_id
            for each in doubts
            if each.workflow_id not in answers
            and each.workflow_id in self.world.running
        ]
        self.controller.checked(doubts, answers, silent)


_SIGNALS = [
    signal.name
    for signal in vars(FleetSchedulerSignals).values()
    if hasattr(signal, "message")
]
