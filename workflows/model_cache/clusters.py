"""Which clusters a ModelCache knows.

A cluster reports itself to all caches when something about it changes; a survey finds those that did so before this cache existed.
"""

from datetime import timedelta

from activities.messaging.messages import Survey
from api_types import names
from api_types.messages.caches import CacheSite
from workflows.entity.context import EntityContext
from workflows.entity.querying import query_each, query_pages
from workflows.model_cache.plan import can_stage, selects
from workflows.model_cache.spec import match_labels
from workflows.model_cache.state import CacheState, ClusterStaging

# Reports of clusters may be lost with their receiver: every six hours all are queried again.
SURVEY_EVERY_RESYNCS = 12
SURVEY_PAGE = 200

# A cluster whose worker is just starting answers within this time.
QUERY_AGAIN = timedelta(seconds=8)


class Clusters:
    """Keeps the clusters on which something is, or could be, staged."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state

    def record(self, site: CacheSite) -> None:
        """Add a cluster on which something shall be staged, or update one that is known."""
        if site.name not in self.state.known_clusters:
            self.state.known_clusters.append(site.name)
        staging = self.state.stagings.get(site.name)
        if staging is not None:
            if site.uid != staging.site.uid:
                # Another record of that name: it does not know what this cache has there, and what was applied may be gone.
                staging.registered = False
                for copy in staging.copies:
                    copy.applied_generation = 0
            if site.uid != staging.site.uid or site.sequence >= staging.site.sequence:
                staging.site = site
                self.context.mark_changed()
        elif self.state.spec is not None and not self.state.deleting and can_stage(site) and selects(match_labels(self.state.spec), site):
            self.state.stagings[site.name] = ClusterStaging(site=site)
            self.context.mark_changed()

    def repeat_survey(self) -> None:
        """Query all clusters again in the next pass."""
        self.state.surveyed = False

    async def survey(self) -> None:
        """Query every cluster, if that was not done since the spec last changed."""
        if self.state.surveyed:
            return
        self.state.surveyed = True
        clusters = Survey(kinds=["InferenceCluster"], query="cache_site", page_size=SURVEY_PAGE)
        async for page in query_pages(clusters, "query the clusters of the fleet"):
            for answer in page.answers.values():
                self.record(CacheSite.model_validate(answer))
            if page.unresponsive:
                self.state.surveyed = False
                self.context.requeue_after(QUERY_AGAIN)
        missing = [name for name in self.state.stagings if name not in self.state.known_clusters]
        if missing:
            await self._query(missing)

    async def _query(self, clusters: list[str]) -> None:
        """Query clusters that visibility did not list; one that does not run any more has no record."""
        by_id = {names.workflow_id("InferenceCluster", "", name): name for name in clusters}
        queried = await query_each(by_id, "cache_site", f"query {len(by_id)} clusters")
        for workflow_id, name in by_id.items():
            if workflow_id in queried.answers:
                self.record(CacheSite.model_validate(queried.answers[workflow_id]))
            elif workflow_id not in queried.unresponsive:
                staging = self.state.stagings[name]
                staging.site = staging.site.model_copy(update={"present": False})
