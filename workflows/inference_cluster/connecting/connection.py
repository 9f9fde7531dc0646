"""Connect to a cluster once per generation, and again after a failure."""

from datetime import datetime
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.clusters.activities import ClusterActivities
from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.queues import ClusterWork, cluster_queue
from workflows.entity import backoff
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import (
    NO_FAILURE,
    WAITING_FOR_WORKER,
    Failure,
    failure_of,
    was_never_started,
)
from workflows.inference_cluster.connecting.connection_wait import ConnectionBackoff
from workflows.inference_cluster.spec import (
    call_queue,
    connect_order,
    connection_of,
    declared_facts,
)
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import unserved_message, unwatched_message


class ClusterConnection:
    """Connects to the cluster and stores the facts found there."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.wait = ConnectionBackoff(context)
        self.retry_at: datetime | None = None

    def reset_backoff(self) -> None:
        """Make the next attempt in the next pass."""
        self.wait.stop()
        self.retry_at = None

    def renew(self) -> None:
        """Connect again in the next pass: the cluster serves other kinds now."""
        self.reset_backoff()
        self.state.connected_generation = 0
        self.context.requeue()

    def stop(self) -> None:
        """Stop waiting after a failed attempt."""
        self.wait.stop()

    def is_watchable(self) -> bool:
        """Return whether an observer may start now.

        A cluster that is being deleted does not connect again. While it has replicas
        or volumes of caches, it is watched after a pause that grows with each failed
        watch.
        """
        if not self.state.deleting:
            return bool(self.state.connected_generation)
        if self.retry_at and self.context.moment() < self.retry_at:
            self.context.requeue_at(self.retry_at)
            return False
        state = self.state
        return bool(state.connected_generation or state.occupied or state.caches)

    def update_declared(self) -> None:
        """Update the facts that the spec and the annotations declare."""
        if self.state.facts:
            self.state.facts = self.state.facts.model_copy(
                update=declared_facts(self.state)
            )

    def update_found(self, found: ClusterFacts | None) -> None:
        """Update the facts that the observer found.

        The gateway is observed separately. StorageClasses change only if they were
        listed. A cluster that was deleted, or reset during its deletion, before it
        connected learns its facts here, because the replicas and caches on it need them
        for their teardown.
        """
        before = self.state.facts
        if found is None:
            return
        if before is None:
            if self.state.deleting:
                self._record_facts(found, self.state.generation)
            return
        known: dict[str, Any] = {
            "gateway_address": before.gateway_address,
            "gateway_message": before.gateway_message,
        }
        if found.storage_classes is None:
            known["storage_classes"] = before.storage_classes
        self.state.facts = found.model_copy(update=known | declared_facts(self.state))
        if self.state.facts.rendered_from() != before.rendered_from():
            self.context.record_event("Normal", "FactsChanged", _shown(found))

    async def connect(self) -> bool:
        """Connect if this generation is not connected yet.

        Return True after a success. Do nothing while another wait or backoff is
        running.
        """
        connection = connection_of(self.context.name, self.state)
        if (
            connection is None
            or self.state.connected_generation == self.state.generation
        ):
            return False
        if self.state.unserved_queue == call_queue(connection) or self.wait.holds:
            return False
        if self.retry_at and self.context.moment() < self.retry_at:
            self.context.requeue_at(self.retry_at)
            return False
        generation = self.state.generation
        if self.state.facts is None and not self.state.failure.type:
            self._show_connecting()
        try:
            facts = await self._find_facts(connection)
        except ActivityError as error:
            if was_never_started(error):
                self.state.unserved_queue = call_queue(connection)
                self.state.failure = Failure(
                    WAITING_FOR_WORKER, unserved_message(call_queue(connection))
                )
                self._record_event()
            else:
                self._record_failure(failure_of(error))
                self.wait.start(connection)
            return False
        if facts is None:
            return False
        observed = (
            {"storage_classes": self.state.facts.storage_classes}
            if self.state.facts
            else {}
        )
        self.state.failure = NO_FAILURE
        self.state.attempts = 0
        self.state.unreachable_since = self.state.unreachable_noticed = ""
        self._record_facts(facts.model_copy(update=observed), generation)
        return True

    def _record_facts(self, facts: ClusterFacts, generation: int) -> None:
        self.state.facts = facts.model_copy(update=declared_facts(self.state))
        self.state.connected_generation = generation
        self.context.record_event("Normal", "Connected", _shown(facts))

    async def _find_facts(self, connection: Connection) -> ClusterFacts | None:
        """Connect. Return None if the cluster was deleted in the meantime."""
        return await self.context.run_until(
            lambda: self.state.deleting,
            workflow.execute_activity_method(
                ClusterActivities.connect_cluster,
                connect_order(connection, self.state),
                **activity_options.on_cluster(
                    activity_options.CONNECT,
                    f"connect to {self.context.name}",
                    connection.task_queue,
                ),
            ),
        )

    def _show_connecting(self) -> None:
        """Publish that the first attempt is running, because it may take minutes."""
        self.context.set_condition("ClusterReady", FALSE, "Provisioning", "connecting")
        self.context.set_condition(
            "BackendReady", FALSE, "WaitingForCluster", "connecting"
        )
        self.context.set_condition("Ready", FALSE, "Creating", "connecting")
        self.context.publish()

    def _record_event(self) -> None:
        self.context.record_event(
            "Warning", self.state.failure.type, self.state.failure.message
        )

    def _record_failure(self, failure: Failure) -> None:
        self.state.failure = failure
        self._record_event()
        # The wait for a change may end at once, each time with another failure.
        self.retry_at = self.context.moment() + backoff.missing(self.state.attempts)
        self.state.attempts += 1

    def lose(self, error: BaseException) -> None:
        """Connect again because the observer failed.

        Wait for the backoff first, unless no worker accepted the observer. Earlier
        observations are outdated until a new observer reports.
        """
        connection = connection_of(self.context.name, self.state)
        self.state.unwatched_since = self.state.unwatched_since or self.context.now()
        if was_never_started(error) and connection:
            # The connect needs no slot for observers, so it shows whether there is a
            # worker.
            self.state.unserved_queue = cluster_queue(
                connection.task_queue, ClusterWork.WATCH
            )
            self.context.record_event(
                "Warning", WAITING_FOR_WORKER, unwatched_message(self.state)
            )
            self.retry_at = None
        else:
            self.state.failure = failure_of(error)
            self.retry_at = self.context.moment() + backoff.transient(
                self.state.attempts
            )
            if self.state.deleting:
                self.state.attempts += 1
        if not self.state.deleting:
            self.state.connected_generation = 0
        self.context.requeue()


def _shown(facts: ClusterFacts) -> str:
    return f"Kubernetes {facts.kubernetes_version}, DRA {facts.dra_version or 'not served'}"
