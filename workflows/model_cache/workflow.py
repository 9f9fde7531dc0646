"""ModelCache: weights, staged once on every cluster that it selects, the same revision everywhere.

It pins the revision, fills a volume per cluster, tries again what failed, hands new artefacts to its users one after the other, and takes
away only what nobody mounts. A cluster that is badly described for a moment, a token that is gone, a hub that is silent: none of them
costs a volume.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from activities.messaging import AskEach, EntityClient, Survey
from api_types import names
from api_types.messages.caches import CacheAccount, CacheChanged, CacheSite
from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.messages.observations import Observed
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE, TRUE, is_true
from workflows.model_cache.plan import Wanted, absorb, can_begin, chooses, reset_backoff
from workflows.model_cache.source import CacheSource
from workflows.model_cache.state import CacheState, ClusterStaging
from workflows.model_cache.status import Standing, artifact_verdict, matched_verdict, phase_of, shown, standings

# Clusters that were not seen when a cache looked around tell it of themselves; this is the net below, every six hours.
SURVEY_EVERY_RESYNCS = 12
SURVEY_PAGE = 200

# Whoever is started while a cache announces itself may not be listed yet.
ANNOUNCE_AGAIN = timedelta(seconds=2)
ANNOUNCEMENTS = 2

# How often users are asked whether they still run, while a deletion waits for them.
ASK_USERS = timedelta(minutes=1)


@workflow.defn(name="ModelCache")
class ModelCacheWorkflow(CacheSource):
    """One cache."""

    kind = "ModelCache"

    @workflow.init
    def __init__(self, state: CacheState | None) -> None:
        super().__init__(state or CacheState())
        self.leaving = False
        self.users_asked = workflow.now()
        self.gone = False

    @workflow.run
    async def run(self, state: CacheState | None) -> None:
        """Live until no cluster holds anything of it."""
        del state
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @workflow.signal
    def cluster_changed(self, order: Any) -> None:
        """Note how a cluster is."""
        site = self.read(CacheSite, order)
        if site:
            self.take_site(site)

    @workflow.signal
    def observed(self, order: Any) -> None:
        """Note what the observer of a cluster saw of our objects."""
        message = self.read(Observed, order)
        if message is None or message.owner_uid != self.state.uid or message.cache is None:
            return
        place = self.state.places.get(message.cache.cluster)
        if place:
            for news in absorb(place, message.cache, workflow.now()):
                self.event("Warning", "VolumeLost", news)
            self.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give where this cache believes to have objects."""
        clusters = [] if self.state.deleted else [name for name, place in self.state.places.items() if place.copies]
        return CacheAccount(namespace=self.namespace, name=self.name, uid=self.state.uid, clusters=clusters).wire()

    def take_site(self, site: CacheSite) -> None:
        """Take a cluster in that could be staged on, or note what is new about one that is known."""
        if site.name not in self.state.known:
            self.state.known.append(site.name)
        place = self.state.places.get(site.name)
        if place is not None:
            if site.uid != place.site.uid:
                # Another record of that name: it must learn what is there, and we what of it still stands.
                place.registered = False
                for copy in place.copies:
                    copy.applied = 0
            if site.uid != place.site.uid or site.sequence >= place.site.sequence:
                place.site = site
                self.touch()
        elif self.state.spec is not None and not self.state.deleted and can_begin(site) and chooses(self.match_labels(), site):
            self.state.places[site.name] = ClusterStaging(site=site)
            self.touch()

    # --- the wish -----------------------------------------------------------------------------------------------------------------

    def on_spec_changed(self) -> None:
        """Look at all clusters again, and let what failed be tried again: whoever wrote the spec may have mended it."""
        self.state.surveyed = False
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        """Try again now what waits for its next attempt."""
        for place in self.state.places.values():
            place.retry_at, place.errors = "", 0
            for copy in place.copies:
                reset_backoff(copy)
        pin = self.state.pin
        if pin and pin.problem and not any(copy.attempts for place in self.state.places.values() for copy in place.copies):
            self.state.pin = None

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Look for clusters, pin, stage, judge, tell."""
        if self.state.deleted:
            return await self.tear_down()
        if self.state.spec is None or not self.can_be_read():
            return False
        if self.state.announced < ANNOUNCEMENTS:
            await self.announce()
            self.state.announced += 1
            self.requeue_after(ANNOUNCE_AGAIN)
        if not self.state.surveyed:
            await self.look_around()
        if self.state.places:
            await self.pin()
        wanted = self.wanted()
        if wanted and not self.state.deleted:
            await self.work(wanted)
            self.await_credential()
        self.judge()
        await self.tell_users()
        self.state.observed_generation = self.state.generation
        return False

    def repeat_reports(self) -> None:
        """Repeat what may have been lost."""
        self.state.resyncs += 1
        for place in self.state.places.values():
            for copy in place.copies:
                copy.applied = copy.applied if copy.ready_at else 0
        if self.state.resyncs % SURVEY_EVERY_RESYNCS == 0:
            self.state.surveyed = False

    async def look_around(self) -> None:
        """Ask every cluster how it is."""
        self.state.surveyed, after = True, ""
        while True:
            page = await workflow.execute_activity_method(
                EntityClient.survey,
                Survey(kinds=["InferenceCluster"], query="cache_site", page_size=SURVEY_PAGE, after=after),
                **activity_options.remote(activity_options.ENTITY_BATCH, "look at the clusters of the fleet"),
            )
            for answer in page.answers.values():
                self.take_site(CacheSite.model_validate(answer))
            after = page.after
            if page.silent:
                self.state.surveyed = False
                self.requeue_after(backoff.transient(2))
            if not after:
                break
        missing = [name for name in self.state.places if name not in self.state.known]
        if missing:
            await self._ask_after(missing)

    async def _ask_after(self, clusters: list[str]) -> None:
        ids = {names.workflow_id("InferenceCluster", "", name): name for name in clusters}
        asked = await workflow.execute_activity_method(
            EntityClient.ask_each,
            AskEach(workflow_ids=sorted(ids), query="cache_site"),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"ask after {len(ids)} clusters"),
        )
        for workflow_id, name in ids.items():
            if workflow_id in asked.answers:
                self.take_site(CacheSite.model_validate(asked.answers[workflow_id]))
            elif workflow_id not in asked.silent:
                place = self.state.places[name]
                place.site = place.site.model_copy(update={"present": False})

    # --- judging ------------------------------------------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """Give every cluster in a word."""
        return standings(self.ordered(), self._selection())

    def ordered(self) -> list[ClusterStaging]:
        """Give the places by name."""
        return [self.state.places[name] for name in sorted(self.state.places)]

    def _selection(self) -> Wanted:
        return self.wanted() or Wanted("", "", "", self.state.generation, self.match_labels(), deleting=bool(self.state.deleted))

    def judge(self) -> None:
        """Write the conditions from what is known."""
        found = self.standings()
        missing = next((copy.missing for place in self.ordered() for copy in place.copies[:1] if copy.missing), "")
        before = next((c.reason for c in self.state.conditions if c.type == "ArtifactReady"), "")
        self.condition("ClustersMatched", *matched_verdict(found))
        verdict = artifact_verdict(found, missing)
        self.condition("ArtifactReady", *verdict)
        if not before and found:
            clusters = [each.name for each in found if each.matched]
            self.event("Normal", "Staging", f"Staging {self.artefact().origin} to {len(clusters)} clusters: {', '.join(clusters)}")
        if verdict[1] != before and verdict[1] in ("AuthSecretMissing", "NoClusters"):
            self.event("Warning", verdict[1], verdict[2] or matched_verdict(found)[2])
        if verdict[0] == TRUE and not is_true(self.state.conditions, "Ready"):
            self.event("Normal", "Staged", f"{self.artefact().origin} is staged on all {len(found)} clusters")
            self.state.was_ready = True
        reason = "Unavailable" if self.state.was_ready else "Creating"
        self.condition("Ready", *((TRUE, "Available", "") if verdict[0] == TRUE else (FALSE, reason, f"{verdict[1]}: {verdict[2]}")))

    # --- leaving ------------------------------------------------------------------------------------------------------------------

    async def tear_down(self) -> bool:
        """Wait for the last user, then take everything off every cluster, then go."""
        self.condition("Ready", FALSE, "Deleting", "")
        if self.mounting() and not self.state.forced and workflow.now() - self.users_asked >= ASK_USERS:
            self.users_asked = workflow.now()
            await self.look_after_users()
        if self.mounting() and not self.state.forced:
            users = ", ".join(self.mounting())
            self.condition("Deleting", FALSE, "InUse", f"used by ModelReplica {users}; delete them or take modelCacheRef away")
            await self.tell_users()
            self.requeue_after(ASK_USERS)
            return False
        if self.state.forced == "step" and self.mounting():
            self.state.forced = ""
        elif self.state.forced:
            self.leave_behind("deletion was forced")
        if not self.leaving:
            # What is being staged would only be taken away again.
            self.leaving = True
            await self.stop_background_tasks()
        for user in self.state.users.values():
            user.claims, user.given = [], ""
        await self.work(self._selection())
        if self.state.places:
            waits = [f"{place.site.name}{_because(place)}" for place in self.ordered()]
            self.condition("Deleting", FALSE, "TearingDown", f"Job, credential and volume leave {'; '.join(waits)}")
            return False
        # A closed workflow still answers queries: say so before anybody could ask.
        self.gone = True
        await self._say_goodbye()
        return True

    async def _say_goodbye(self) -> None:
        gone = CacheChanged(cache=self.name, uid=self.state.uid, sequence=self.state.sequence + 1, present=False).wire()
        tells = [
            SignalRequest(workflow_id=user.workflow_id, signal="cache_changed", payload=gone)
            for _, user in sorted(self.state.users.items(), key=lambda item: item[1].workflow_id)
        ]
        if tells:
            await workflow.execute_activity_method(
                EntityClient.tell_many,
                SignalBatch(signals=tells),
                **activity_options.remote(activity_options.ENTITY_BATCH, "tell users that the cache is gone"),
            )

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def phase(self) -> str:
        """One that failed everywhere is Failed, one that is whole on some clusters and was so on all is Degraded."""
        phase = super().phase()
        reason = next((c.reason for c in self.state.conditions if c.type == "ArtifactReady"), "")
        if phase == "Progressing" and reason == "Failed":
            return "Failed"
        return "Degraded" if phase == "Progressing" and self.state.was_ready else phase

    def details(self) -> list[str]:
        """Show every cluster in the Temporal UI."""
        rows = [f"| {place.site.name} | {' | '.join(text.replace('|', '/') for text in phase_of(place))} |" for place in self.ordered()]
        return ["| Cluster | Phase | |", "|---|---|---|", *rows, ""] if rows else []

    def status(self) -> dict[str, Any]:
        """Show where the weights are."""
        places = self.ordered()
        retained = [place.site.name for place in places if place.unmatched_since and self.used_on(place.site.name)]
        return shown(places, self.standings(), self.state.pin, retained)


def _because(place: ClusterStaging) -> str:
    kind, message = place.error
    if kind:
        return f" ({kind}: {message})"
    return "" if place.site.connection else " (not connected)"
