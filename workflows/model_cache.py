"""ModelCache: weights, staged once on every cluster that it selects, the same revision everywhere.

It pins the revision, fills a volume per cluster, tries again what failed, hands new artefacts to its users one after the other, and takes
away only what nobody mounts. A cluster that is badly described for a moment, a token that is gone, a hub that is silent: none of them
costs a volume.
"""

import asyncio
import hashlib
import json
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.caches import CacheActivities
from activities.messaging import AskEach, Messaging, Survey
from activities.render.artefact import Artefact, artefact_key, claim_name, read_artefact
from activities.render.facts import CacheInput
from activities.render.findings import InvalidSpec
from activities.revisions import RevisionActivities
from api_types import labels, names, queues
from api_types.cache_messages import (
    AwaitCredential,
    CacheAccount,
    CacheChanged,
    CacheOrder,
    CacheSite,
    ResolveRevision,
)
from api_types.errors import error_message, error_type
from api_types.messages import Connection, Tell, TellMany
from api_types.observations import Observed
from workflows import options
from workflows.cache_plan import AUTH_REFUSED, Wanted, absorb, can_begin, chooses, forgive
from workflows.cache_staging import CacheStaging
from workflows.cache_state import CacheState, Copy, Pin, Place
from workflows.cache_status import (
    Standing,
    artifact_verdict,
    matched_verdict,
    phase_of,
    pin_verdict,
    shown,
    standings,
)
from workflows.status import FALSE, TRUE, is_true

# Clusters that were not seen when a cache looked around tell it of themselves; this is the net below, every six hours.
SURVEY_EVERY_RESYNCS = 12
SURVEY_PAGE = 200

# Whoever is started while a cache announces itself may not be listed yet.
ANNOUNCE_AGAIN = timedelta(seconds=2)
ANNOUNCEMENTS = 2

# How often users are asked whether they still run, while a deletion waits for them.
ASK_USERS = timedelta(minutes=1)


@workflow.defn(name="ModelCache")
class ModelCacheWorkflow(CacheStaging):
    """One cache."""

    kind = "ModelCache"

    @workflow.init
    def __init__(self, state: CacheState | None) -> None:
        super().__init__(state or CacheState())
        self.awaiting: asyncio.Task[None] | None = None
        self.leaving = False
        self.gone = False

    @workflow.run
    async def run(self, state: CacheState | None) -> None:
        """Live until no cluster holds anything of it."""
        del state
        await self.live()

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
            self.wake()

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
            if site.uid != place.site.uid or site.sequence >= place.site.sequence:
                place.site = site
                self.touch()
        elif self.state.spec is not None and not self.state.deleted and can_begin(site) and chooses(self.match_labels(), site):
            self.state.places[site.name] = Place(site=site)
            self.touch()

    # --- the wish -----------------------------------------------------------------------------------------------------------------

    def spec_changed(self) -> None:
        """Look at all clusters again, and let what failed be tried again: whoever wrote the spec may have mended it."""
        self.state.surveyed = False
        self.retry_ordered()

    def retry_ordered(self) -> None:
        """Try again now what waits for its next attempt."""
        for place in self.state.places.values():
            place.retry_at, place.errors = "", 0
            for copy in place.copies:
                forgive(copy)
        pin = self.state.pin
        if pin and pin.problem and not any(copy.attempts for place in self.state.places.values() for copy in place.copies):
            self.state.pin = None

    def match_labels(self) -> dict[str, str]:
        """Give the labels that a cluster must have."""
        return dict(((self.state.spec or {}).get("clusterSelector") or {}).get("matchLabels") or {})

    def as_input(self, revision: str = "") -> CacheInput:
        """Give this cache as rendering reads it."""
        return CacheInput(self.namespace, self.name, self.state.uid, self.state.generation, "", self.state.spec or {}, revision=revision)

    def artefact(self) -> Artefact:
        """Give what is staged, its revision as written."""
        return read_artefact(self.as_input())

    def can_be_read(self) -> bool:
        """Tell whether the spec names an artefact; admission knows less of image references than rendering does."""
        try:
            self.artefact()
        except InvalidSpec as error:
            self.refuse(str(error))
            self.condition("Ready", FALSE, "InvalidInput", str(error))
            return False
        return True

    def wanted(self) -> Wanted | None:
        """Give what shall be staged, and where; None before the revision was asked for."""
        if self.state.spec is None or self.state.pin is None:
            return None
        pinned = self.as_input(self.state.pin.revision)
        return Wanted(
            artefact_key=artefact_key(pinned),
            claim=claim_name(pinned),
            revision=self.state.pin.revision or self.artefact().revision,
            generation=self.state.generation,
            match_labels=self.match_labels(),
            deleting=bool(self.state.deleted),
        )

    def order(self, place: Place, copy: Copy, connection: Connection, *, hydrate: bool) -> CacheOrder:
        """Say all that is needed to stage an artefact on a cluster."""
        return CacheOrder(
            connection=connection,
            cluster=place.site.name,
            namespace=self.namespace,
            name=self.name,
            uid=self.state.uid,
            generation=self.state.generation,
            spec=self.state.spec or {},
            revision=self.state.pin.revision if self.state.pin else "",
            storage_class_name=place.site.storage_class_name,
            scheduler_type=place.site.scheduler_type,
            hydrate=hydrate,
            spent_job=copy.spent,
        )

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
            self.look_again(ANNOUNCE_AGAIN)
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

    def resync(self) -> None:
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
                Messaging.survey,
                Survey(kinds=["InferenceCluster"], query="cache_site", page_size=SURVEY_PAGE, after=after),
                **options.remote(options.TELL_MANY, "look at the clusters of the fleet"),
            )
            for answer in page.answers.values():
                self.take_site(CacheSite.model_validate(answer))
            after = page.after
            if page.silent:
                self.state.surveyed = False
                self.look_again(options.soon(2))
            if not after:
                break
        missing = [name for name in self.state.places if name not in self.state.known]
        if missing:
            await self._ask_after(missing)

    async def _ask_after(self, clusters: list[str]) -> None:
        ids = {names.workflow_id("InferenceCluster", "", name): name for name in clusters}
        asked = await workflow.execute_activity_method(
            Messaging.ask_each,
            AskEach(workflow_ids=sorted(ids), query="cache_site"),
            **options.remote(options.TELL_MANY, f"ask after {len(ids)} clusters"),
        )
        for workflow_id, name in ids.items():
            if workflow_id in asked.answers:
                self.take_site(CacheSite.model_validate(asked.answers[workflow_id]))
            elif workflow_id not in asked.silent:
                place = self.state.places[name]
                place.site = place.site.model_copy(update={"present": False})

    # --- the revision -------------------------------------------------------------------------------------------------------------

    async def pin(self) -> None:
        """Find out once which revision is meant; a new value of the refresh annotation asks anew."""
        artefact, refresh = self.artefact(), self.state.annotations.get(labels.REFRESH, "")
        reference = hashlib.sha256(json.dumps([artefact.source, artefact.origin, artefact.revision]).encode()).hexdigest()[:16]
        old = self.state.pin
        if old and (old.reference, old.refresh) == (reference, refresh):
            return
        kept = old.revision if old and old.reference == reference else ""
        try:
            answer = await self.unless(
                lambda: bool(self.state.deleted),
                workflow.execute_activity_method(
                    RevisionActivities.resolve_revision,
                    ResolveRevision(namespace=self.namespace, name=self.name, spec=self.state.spec or {}),
                    **options.remote(options.ASK_OUTSIDE, f"find the revision of {artefact.origin}", queues.CLUSTERS),
                ),
            )
        except ActivityError as error:
            self.state.pin = Pin(reference=reference, refresh=refresh, revision=kept, problem=error_message(error))
            self.event("Warning", "Unresolved", self.state.pin.problem)
        else:
            if answer is None:
                return
            self.state.pin = Pin(reference=reference, refresh=refresh, revision=answer.revision)
            if kept and kept != answer.revision:
                self.event("Normal", "Refreshed", f"{artefact.origin} moved from {kept} to {answer.revision}")
        self.condition("RevisionPinned", *pin_verdict(self.state.pin))
        self.publish()

    # --- the credential -----------------------------------------------------------------------------------------------------------

    def await_credential(self) -> None:
        """Have somebody wait for the credential while a cluster waits for it."""
        if self.awaiting and self.awaiting.done():
            self.awaiting = None
        artefact = self.artefact()
        waits = any(
            copy.missing or (copy.failed and copy.exit_code == AUTH_REFUSED)
            for place in self.state.places.values()
            for copy in place.copies[:1]
        )
        if waits and artefact.credential and self.awaiting is None:
            order = AwaitCredential(
                namespace=self.namespace, name=artefact.credential, key=artefact.credential_key, version=self.state.credential
            )
            self.awaiting = asyncio.create_task(self._await_credential(order))
        elif not waits and self.awaiting:
            self.awaiting.cancel()

    async def _await_credential(self, order: AwaitCredential) -> None:
        try:
            version = await workflow.execute_activity_method(
                CacheActivities.await_credential,
                order,
                **options.remote(options.UNTIL_GONE, f"wait for a change of Secret {order.namespace}/{order.name}", queues.CLUSTERS),
            )
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self.event("Warning", error_type(error), error_message(error))
                self.look_again(options.patience(0))
            return
        self.state.credential = version
        for place in self.state.places.values():
            for copy in place.copies[:1]:
                copy.missing = ""
                if copy.failed and copy.exit_code == AUTH_REFUSED:
                    forgive(copy)
        pin = self.state.pin
        if pin and not pin.revision and not any(copy.attempts for place in self.state.places.values() for copy in place.copies):
            # Nothing was downloaded under the revision as written: with the credential it may be found out after all.
            self.state.pin = None
        self.touch()

    async def put_down(self) -> None:
        """End what runs in the background."""
        if self.awaiting:
            self.awaiting.cancel()
            await asyncio.gather(self.awaiting, return_exceptions=True)
            self.awaiting = None
        await super().put_down()

    # --- judging ------------------------------------------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """Give every cluster in a word."""
        return standings(self.ordered(), self._selection())

    def ordered(self) -> list[Place]:
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
        if self.mounting() and not self.state.forced:
            await self.look_after_users()
        if self.mounting() and not self.state.forced:
            users = ", ".join(self.mounting())
            self.condition("Deleting", FALSE, "InUse", f"used by ModelReplica {users}; delete them or take modelCacheRef away")
            await self.tell_users()
            self.look_again(ASK_USERS)
            return False
        if self.state.forced == "step" and self.mounting():
            self.state.forced = ""
        elif self.state.forced:
            self.leave_behind("deletion was forced")
        if not self.leaving:
            # What is being staged would only be taken away again.
            self.leaving = True
            await self.put_down()
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
            Tell(workflow_id=user.workflow_id, signal="cache_changed", payload=gone)
            for _, user in sorted(self.state.users.items(), key=lambda item: item[1].workflow_id)
        ]
        if tells:
            await workflow.execute_activity_method(
                Messaging.tell_many, TellMany(tells=tells), **options.remote(options.TELL_MANY, "tell users that the cache is gone")
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


def _because(place: Place) -> str:
    kind, message = place.error
    if kind:
        return f" ({kind}: {message})"
    return "" if place.site.connection else " (not connected)"
