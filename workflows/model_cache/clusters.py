"""Find the clusters for a ModelCache.

A cluster reports its changes to all caches. A survey finds clusters that reported
before this cache existed.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from activities.messaging.messages import Survey
from api_types import names
from api_types.messages.caches import CacheSite
from api_types.messages.delivery import EntityRef
from api_types.messages.signals import InferenceClusterSignals
from workflows.entity.calls.querying import query_each, query_pages
from workflows.entity.calls.sending import REPEAT_BROADCAST, send_all
from workflows.entity.context import EntityContext
from workflows.model_cache.plan import selects
from workflows.model_cache.results import left_by_label
from workflows.model_cache.sites import new_staging, record_site, record_unready
from workflows.model_cache.spec import gets_by_pods, match_labels, volume_class
from workflows.model_cache.state import CacheState, ClusterStaging

# Reports may be lost with their receiver, so all clusters are queried every six hours.
SURVEY_EVERY_RESYNCS = 6
SURVEY_PAGE = 200
# How often a cache queries all clusters for one spec. Visibility lags, and may miss a
# cluster that is continuing as new. A cluster that does not change sends no report
# either.
SURVEYS = 2


class StagingClusters:
    """Stores the clusters that hold or may hold artifacts."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    def reported(self, site: CacheSite) -> None:
        """Record a report of a cluster.

        If the report may come from an earlier cluster of this name, the next pass
        queries the cluster.
        """
        staging = self.state.stagings.get(site.name)
        if staging is not None and staging.site_version.is_doubtful(site.uid):
            staging.doubted = True
            self.context.requeue()
            return
        unready = self.state.unready
        self._record(site)
        if self.state.unready != unready and not self.state.stagings:
            # The condition shows why no cluster can be used.
            self.context.mark_changed()

    def _answered(self, site: CacheSite) -> None:
        """Record the answer of a cluster.

        An answer always comes from the current cluster.
        """
        staging = self.state.stagings.get(site.name)
        if staging is not None:
            staging.doubted = False
            staging.site_version = staging.site_version.allowing(site.uid)
        self._record(site)

    def _record(self, site: CacheSite) -> None:
        """Update a known cluster, or add one that can stage the artifact."""
        if site.name in self.state.silent and not self.state.deleting:
            self.state.silent.remove(site.name)
        staging = self.state.stagings.get(site.name)
        if staging is not None:
            if record_site(staging, site):
                self.context.mark_changed()
            return
        spec = self.state.spec
        fresh = new_staging(site, volume_class(spec), by_pods=gets_by_pods(spec))
        selected = selects(match_labels(spec), site)
        keeps_it = selected and not (fresh.by_pods or site.deleting)
        if self._earlier_holder(site) and (self.state.deleting or not keeps_it):
            self._release(fresh)
        elif spec is not None and not self.state.deleting:
            record_unready(self.state, site)
            if selected and fresh.can_stage:
                self.state.stagings[site.name] = fresh
                self.context.mark_changed()

    def _earlier_holder(self, site: CacheSite) -> str:
        """Return the uid of an earlier cache of this name with volumes on the cluster.

        A cluster that is being deleted waits for the caches that it knows.
        """
        uid = site.holders.get(f"{self.context.namespace}/{self.context.name}", "")
        return "" if uid == self.state.uid else uid

    def _release(self, fresh: ClusterStaging) -> None:
        """Release a cluster from an earlier cache of this name, which was terminated.

        Its remaining volumes are unknown. A cluster on which this cache stages needs no
        release, because the cache takes the volumes over.
        """
        site, fresh.registered = fresh.site, True
        self.state.stagings[site.name] = fresh
        earlier = f"an earlier {self.context.kind} of this name that was terminated"
        message = f"volumes of {earlier} may still exist on {site.name}"
        self.context.record_event("Warning", "Abandoned", message)
        why = (
            "is not used any more"
            if site.present and not site.deleting
            else "was deleted"
        )
        self._list_earlier(
            site.name, f"the cluster {why}, and the cache was terminated before"
        )
        self.context.mark_changed()

    def list_what_silent_clusters_may_have(self) -> None:
        """List silent clusters: volumes of an earlier cache may be on them."""
        for name in self.state.silent:
            self._list_earlier(name, "the cluster did not answer which caches it holds")
        self.state.silent = []

    def _list_earlier(self, cluster: str, why: str) -> None:
        context = self.context
        self.state.add_left_behind(
            [left_by_label(context.namespace, context.name, cluster, why)]
        )

    def repeat_survey(self) -> None:
        """Query all clusters again in the next pass."""
        self.state.surveyed = False

    def survey_for_new_spec(self) -> None:
        """Query all clusters in the next pass, and again after the lag of visibility."""
        self.repeat_survey()
        self.state.surveys = 0

    async def survey(self) -> None:
        """Query all clusters after a change of the spec, and again after a delay.

        Clusters that answer do not wait for others. After the last survey, clusters
        that did not answer get a signal, and report when they run again.
        """
        if self.state.surveyed and not self._is_due_again():
            doubted = [
                name for name, staging in self.state.stagings.items() if staging.doubted
            ]
            if doubted:
                await self._query(doubted)
            return
        self.state.surveyed = True
        self._plan_another()
        self.state.unready = {}
        unlisted, unresponsive = dict.fromkeys(self.state.stagings), list[str]()
        clusters = Survey(
            kinds=["InferenceCluster"],
            query="cache_site",
            argument=f"{self.context.namespace}/{self.context.name}",
            quick=True,
            page_size=SURVEY_PAGE,
        )
        async for page in query_pages(clusters, "query the clusters of the fleet"):
            sites = read_sites(page.answers)
            for site in sites.values():
                unlisted.pop(site.name, None)
                self._answered(site)
            unreadable = [each for each in page.answers if each not in sites]
            unresponsive += [*page.unresponsive, *unreadable]
        silent = sorted(workflow_id.rpartition("/")[2] for workflow_id in unresponsive)
        self.state.silent = [name for name in silent if name not in self.state.stagings]
        for name in silent:
            unlisted.pop(name, None)
        if unlisted:
            await self._query(list(unlisted))
        if not self.state.survey_at:
            await self._await_reports(unresponsive)

    def _plan_another(self) -> None:
        state = self.state
        state.surveys, state.survey_at = min(state.surveys + 1, SURVEYS), ""
        if state.surveys < SURVEYS:
            self.context.requeue_after(REPEAT_BROADCAST)
            state.survey_at = (self.context.moment() + REPEAT_BROADCAST).isoformat()

    def _is_due_again(self) -> bool:
        at = self.state.survey_at
        return bool(at) and not self.context.waits_until(at)

    async def _await_reports(self, unresponsive: Sequence[str]) -> None:
        """Ask clusters that do not answer to report as soon as they run."""
        if unresponsive:
            requests = [
                InferenceClusterSignals.RESYNC.request(EntityRef(workflow_id), None)
                for workflow_id in sorted(unresponsive)
            ]
            await send_all(requests, f"ask {len(requests)} silent clusters to report")

    async def _query(self, clusters: list[str]) -> None:
        """Query clusters that visibility did not list, and mark those that have ended."""
        by_id = {
            names.workflow_id("InferenceCluster", "", name): name for name in clusters
        }
        queried = await query_each(by_id, "cache_site", f"query {len(by_id)} clusters")
        sites = read_sites(queried.answers)
        existing = {*queried.unresponsive, *queried.answers}
        unread = existing - sites.keys()
        unresponsive = [workflow_id for workflow_id in by_id if workflow_id in unread]
        doubted = [
            workflow_id
            for workflow_id in unresponsive
            if self.state.stagings[by_id[workflow_id]].doubted
        ]
        await self._await_reports(doubted)
        for workflow_id, name in by_id.items():
            staging = self.state.stagings[name]
            staging.doubted = False
            if workflow_id in sites:
                self._answered(sites[workflow_id])
            elif workflow_id not in unresponsive:
                staging.site = staging.site.model_copy(update={"present": False})
                staging.site_version = staging.site_version.ended(staging.site.uid)


def read_sites(answers: Mapping[str, Any]) -> dict[str, CacheSite]:
    """Parse the answers of clusters, by workflow ID.

    Skip answers that cannot be parsed, for example from another version.
    """
    sites: dict[str, CacheSite] = {}
    for workflow_id, answer in answers.items():
        with contextlib.suppress(ValidationError):
            sites[workflow_id] = CacheSite.model_validate(answer)
    return sites
