"""The live fleet for the page, read at a bounded share of the time.

Objects come from the projection. The ledger, the policy and the reports of capacity
adapters come from workflows, whose answers cost more the larger the fleet is.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from api_types.clock import now_ms
from fleet_client.placement.live_fleet import LiveFleet, read_known
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.access.access_file import User
from front.serving import errors
from front.serving.app import Front
from front.serving.requests import RequestedResource

REST_SECONDS = 5.0
"""A fleet that was read at most this long ago is not read again."""
SHARE = 20
"""The pause between two reads is at least this many times the duration of a read."""
REST_SECONDS_MAX = 120.0
_KINDS = (
    "InferenceClass",
    "InferenceCluster",
    "ModelCache",
    "ModelDeployment",
    "ModelReplica",
)
ResultT = TypeVar("ResultT")


class LiveReader:
    """The last read of the live fleet.

    Reads and computations are made one at a time, so many open pages cost as much as
    one. Each user has at most one place in the queue, so nobody can fill it.
    """

    def __init__(
        self, front: Front, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._front, self._clock = front, clock
        self._turn = asyncio.Lock()
        self._turns_of_users: WeakValueDictionary[str, asyncio.Lock] = (
            WeakValueDictionary()
        )
        self._live: LiveFleet | None = None
        self._read_at = 0
        self._until = 0.0
        # Results of functions of the fleet alone, until it is read again.
        self._results: dict[Callable[[LiveFleet], Any], Any] = {}

    async def once(
        self,
        user: User,
        resource: RequestedResource,
        of: Callable[[LiveFleet], ResultT],
    ) -> tuple[ResultT, int]:
        """Return the result of a function as `compute` does, computed once per read."""

        def kept(live: LiveFleet, _target: Target) -> ResultT:
            if of not in self._results:
                self._results[of] = of(live)
            result: ResultT = self._results[of]
            return result

        return await self.compute(user, resource, kept)

    async def compute(
        self,
        user: User,
        resource: RequestedResource,
        of: Callable[[LiveFleet, Target], ResultT],
    ) -> tuple[ResultT, int]:
        """Return the result of a function of the live fleet, and the time of the read.

        The function runs in a thread, because it may take long in a large fleet. The
        time is in milliseconds since 1970. Raises `RejectedRequest`; errors of the
        function become those of the resource.
        """

        async def computed(plane: ControlPlane, target: Target) -> ResultT:
            live = await self._current(plane)
            return await asyncio.to_thread(of, live, target)

        if not self._front.projection.complete:
            raise errors.not_yet("the objects are not loaded yet")
        own = self._turns_of_users.setdefault(user.name, asyncio.Lock())
        async with own, self._turn:
            found = await self._front.workflows.asked(resource, computed)
            return found, self._read_at

    async def _current(self, plane: ControlPlane) -> LiveFleet:
        began = self._clock()
        if self._live is None or began >= self._until:
            projection = self._front.projection
            objects = {
                kind: {
                    (key.namespace, key.name): stored.tree
                    for key, stored in projection.of_kind(kind).items()
                }
                for kind in _KINDS
            }
            at = now_ms()
            self._live = await read_known(plane, objects)
            self._results.clear()
            self._read_at = at
            took = self._clock() - began
            rest = max(REST_SECONDS, SHARE * took)
            self._until = self._clock() + min(rest, REST_SECONDS_MAX)
        return self._live
