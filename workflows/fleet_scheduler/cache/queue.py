"""The scheduling queue: requests that wait for a decision or for capacity.

As in kube-scheduler, a request that could not be placed in full is decided again after
an event that can change its answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from api_types.messages.scheduling import PlacementRequest
from scheduler import Fleet
from workflows.fleet_scheduler.cache.answers import AnswerCache
from workflows.fleet_scheduler.cache.queueing_hints import QueueingHints
from workflows.fleet_scheduler.cache.state import SchedulerState

# The limits of a batch. A decision must fit into one payload and one short activity.
BATCH_REQUESTS = 256
BATCH_REPLICAS = 2000


class SchedulingQueue:
    """The requests in the state. Only the newest request of each deployment counts."""

    def __init__(
        self, state: SchedulerState, fleet: Fleet, answers: AnswerCache
    ) -> None:
        self._state = state
        self._fleet = fleet
        self._answers = answers

    def add(self, place: PlacementRequest) -> None:
        """Queue a request at the end, in place of an older request of its deployment."""
        owner = owner_of(place)
        self._state.queue.pop(owner, None)
        self._state.withheld.pop(owner, None)
        if place.request_id not in self._answers:
            self._state.unplaced.pop(owner, None)
        self._state.queue[owner] = place

    def withhold(self, place: PlacementRequest) -> None:
        """Withhold a request until the account of its deployment is read."""
        self.remove(place.namespace, place.name)
        self._state.withheld[owner_of(place)] = place

    def release_withheld(self, is_known: Callable[[PlacementRequest], bool]) -> None:
        """Queue the withheld requests for which `is_known` is true."""
        for owner, place in list(self._state.withheld.items()):
            if is_known(place):
                del self._state.withheld[owner]
                self.add(place)

    def put_back(self, places: list[PlacementRequest]) -> None:
        """Queue requests before all others.

        If a newer request of the same deployment arrived meanwhile, it takes
        precedence.
        """
        self._state.queue = {
            **{owner_of(place): place for place in places},
            **self._state.queue,
        }

    def remove(self, namespace: str, name: str) -> None:
        self._state.queue.pop(f"{namespace}/{name}", None)
        self._state.unplaced.pop(f"{namespace}/{name}", None)
        self._state.withheld.pop(f"{namespace}/{name}", None)

    def wait_for_capacity(self, place: PlacementRequest) -> None:
        """Keep a request that was not placed in full."""
        self._state.unplaced[owner_of(place)] = place

    def decide_again(self, place: PlacementRequest) -> None:
        """Queue an answered request again, behind all others.

        A newer request of the deployment stays.
        """
        owner = owner_of(place)
        if owner not in self._state.queue:
            self._state.queue[owner] = place
            self._state.unplaced.pop(owner, None)
            self._answers.supersede(place.request_id)

    def requeue_unplaced(self, hints: QueueingHints) -> None:
        """Queue the waiting requests whose answer may have changed."""
        if not hints:
            return
        for place in hints.affected(self._state.unplaced.values(), self._fleet):
            owner = owner_of(place)
            if owner not in self._state.queue:
                self._state.queue[owner] = place
                del self._state.unplaced[owner]
                self._answers.supersede(place.request_id)

    def next_batch(self) -> list[PlacementRequest]:
        """Take waiting requests, by priority and then arrival, up to the batch limits.

        Namespaces of one priority take turns, because the many or costly requests of
        one tenant must not delay another tenant's request by more than one decision.
        """
        options = self._fleet.options
        batch: list[PlacementRequest] = []
        replicas = 0
        turns = Counter[tuple[int, str]]()

        def turn(place: PlacementRequest) -> tuple[int, int]:
            priority = options.priority_of(_priority_class(place))
            turns[priority, place.namespace] += 1
            return -priority, turns[priority, place.namespace]

        for place in sorted(self._state.queue.values(), key=turn):
            if batch and (
                len(batch) == BATCH_REQUESTS or replicas + place.wanted > BATCH_REPLICAS
            ):
                break
            replicas += place.wanted
            batch.append(place)
            del self._state.queue[owner_of(place)]
        return batch


def _priority_class(place: PlacementRequest) -> str:
    # Read the raw need, which the inbox has validated: the queue is sorted more often
    # than a request is decided.
    policy: Mapping[str, Any] = place.need.get("policy") or {}
    return policy.get("priorityClass") or ""


def owner_of(place: PlacementRequest) -> str:
    """Return namespace/name of the deployment of a request."""
    return f"{place.namespace}/{place.name}"
