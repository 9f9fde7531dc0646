"""How a scheduler without state learns what there is: it queries the account of every entity.

A cluster is not accounted, and takes no new replica, while it or one of its replicas has not answered.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, Survey
from api_types.messages.scheduling import ReplicaAccount, ReportClass, ReportCluster, Resync, UnstartedReplicas
from api_types.messages.signals import InferenceClassSignals, InferenceClusterSignals, ModelDeploymentSignals, ReportingSignals
from scheduler import read_entry, reasons
from workflows.entity import activity_options
from workflows.entity.querying import query_pages
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.inbox import Inbox, Log

# Answers of so many entities at once fit one payload.
QUERIED_AT_ONCE = 200

# Deployments before replicas: a replica that is started between the two surveys is in one of the answers.
_SURVEYS = (["InferenceClass", "InferenceCluster"], ["ModelDeployment"], ["ModelReplica"])


class Rebuild:
    """The accounts of all entities, read into the cache."""

    def __init__(self, cache: SchedulerCache, inbox: Inbox, log: Log) -> None:
        self._log = log
        self._cache = cache
        self._inbox = inbox

    async def run(self) -> None:
        """Query the account of every entity, then announce the new epoch to those that have to report again."""
        for kinds in _SURVEYS:
            await self._survey(kinds)
        self._update_accounted()
        epoch = self._cache.state.epoch
        resync = ReportingSignals.RESYNC.broadcast(
            Resync(epoch=epoch), ModelDeploymentSignals, InferenceClusterSignals, InferenceClassSignals
        )
        await workflow.execute_activity_method(
            EntityClient.broadcast, resync, **activity_options.remote(activity_options.ENTITY_BATCH, f"announce epoch {epoch}")
        )

    async def _survey(self, kinds: list[str]) -> None:
        async for page in query_pages(Survey(kinds=kinds, query="account"), f"read the accounts of {', '.join(kinds)}"):
            unreadable = self.adopt_accounts(page.answers)
            self._cache.state.unresponsive |= {**page.unresponsive, **unreadable}

    async def query_unresponsive(self) -> None:
        """Query entities again that did not answer; those that stay unresponsive move to the end of the list, so that each is queried."""
        state = self._cache.state
        queried = list(state.unresponsive)[:QUERIED_AT_ONCE]
        waiting = {workflow_id: state.unresponsive[workflow_id] for workflow_id in list(state.unresponsive)[QUERIED_AT_ONCE:]}
        answered = await workflow.execute_activity_method(
            EntityClient.query_each,
            QueryEach(workflow_ids=queried, query="account"),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"query the accounts of {len(queried)} unresponsive entities"),
        )
        unreadable = self.adopt_accounts(answered.answers)
        state.unresponsive = {**waiting, **answered.unresponsive, **unreadable}
        self._update_accounted()

    def adopt_accounts(self, accounts: Mapping[str, Any]) -> dict[str, str]:
        """Read accounts, by workflow id; those that cannot be read count as not answered, and are given with their clusters."""
        unreadable: dict[str, str] = {}
        for workflow_id, account in accounts.items():
            try:
                self._adopt_account(workflow_id.split("/", 1)[0], account)
            except ValueError as error:
                self._log.error("an account could not be read", extra={"entity": workflow_id, "problems": str(error)})
                unreadable[workflow_id] = _cluster_of(workflow_id, account)
        return unreadable

    def _adopt_account(self, kind: str, account: Any) -> None:
        if kind == "inferencecluster":
            self._inbox.report_cluster(ReportCluster.model_validate(account))
        elif kind == "inferenceclass":
            self._inbox.report_class(ReportClass.model_validate(account))
        elif kind == "modelreplica":
            self._adopt_replica(account, reasons.BOUND)
        else:
            for unstarted in UnstartedReplicas.model_validate(account).unstarted:
                self._adopt_replica(unstarted, reasons.RESERVED)

    def _adopt_replica(self, account: Any, state: str) -> None:
        cache, replica = self._cache, ReplicaAccount.model_validate(account)
        if replica.gone or not replica.entry:
            return
        if cache.fleet.replica(replica.uid) is not None:
            if state == reasons.BOUND:
                cache.fleet.bind(replica.uid, cache.now())
            return
        entry = read_entry(replica.entry)
        state = reasons.RELEASING if replica.deleting else state
        cache.fleet.put_replica(replace(entry, state=state, since=cache.now(), ready=replica.ready, serving=replica.serving))

    def _update_accounted(self) -> None:
        """Allow new replicas on the clusters that are accounted, and only there."""
        cache, unresponsive = self._cache, self._cache.state.unresponsive
        unaccounted = {cluster for cluster in unresponsive.values() if cluster}
        for name, info in list(cache.fleet.clusters.items()):
            if info.view.accounted == (name in unaccounted):
                cache.fleet.put_cluster(replace(info.view, accounted=name not in unaccounted), cache.now())
                cache.hints.add_cluster(name)
        cache.requeue_unplaced()
        cache.fleet.rebuilding = any(workflow_id.startswith("inferencecluster/") for workflow_id in unresponsive)


def _cluster_of(workflow_id: str, account: Any) -> str:
    """Give the cluster of an unreadable account, as far as that can be read."""
    kind, _, name = workflow_id.partition("/")
    cluster = name if kind == "inferencecluster" else account.get("cluster") if isinstance(account, Mapping) else ""
    return cluster if isinstance(cluster, str) else ""
