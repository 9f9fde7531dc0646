"""Stage one artifact of a ModelCache on one cluster, and delete it there.

Every activity is idempotent and may be killed between any two requests. An existing
volume keeps its immutable fields. A Job is created and never changed. A credential is
on the cluster only while a Job needs it. Its value is read from the store only when it
is written to the cluster.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio import activity

from activities.caches.artifact_objects import (
    ArtifactObjects,
    Obstacle,
    adoptable,
    earlier_claims,
    further_copies,
    obstacle_of,
    read_live,
)
from activities.caches.claims import check_storage_class, immutable_fields
from activities.caches.credentials import KeyOf, read_together, references_of
from activities.caller import caller_of, check_caller
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    Json,
    ObjectId,
)
from activities.cluster_objects.deletion import (
    Deleter,
    dependents_of,
    poll_intervals,
)
from activities.cluster_objects.namespaces import ensure_namespace
from activities.cluster_objects.ownership import ObjectOwner
from activities.heartbeat import heartbeating
from activities.observe.cache import MODEL_CACHE
from activities.observe.digest import content_digest
from activities.render.cache.access import options_of
from activities.render.cache.artifact import claim_name, read_artifact, read_volume
from activities.render.cache.volumes import render_cache
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects.propagation import PropagatedCopy
from activities.render.objects.rendered import Rendered
from activities.render.objects.teardown import CACHE_CREDENTIAL, CACHE_STEPS
from activities.render_errors import as_activity_errors
from activities.secrets.copy_data import read_copy_data
from activities.secrets.credentials import StoredCredential
from activities.secrets.shared_copies import (
    REASON_MISSING,
    copies_of,
    pull_secret_copies,
    release_all,
    write_copy,
)
from activities.secrets.store import SecretReader
from api_types import labels
from api_types.errors import (
    CredentialsInvalid,
)
from api_types.messages.caches import (
    ApplyCache,
    AwaitCredential,
    CacheApplied,
    CacheObjectsDeleted,
    DeleteCacheObjects,
)

_STORE_POLL_SECONDS = 5.0


@dataclass(frozen=True)
class CacheActivities:
    """Applies and deletes the objects of ModelCaches on clusters.

    `force_after` is the time after which pods that do not end are deleted without a
    grace period. None disables this.
    """

    clusters: ClusterPool
    store: SecretReader
    settings: RenderSettings
    force_after: timedelta | None = None

    @activity.defn
    async def apply_cache(self, order: ApplyCache) -> CacheApplied:
        """Apply the volume of an artifact, and its credential and Job if it hydrates.

        If the credential is missing, only the volume is applied, and the result names
        the missing Secret. Objects of an earlier run of the same cache are adopted,
        after a Job of that run has ended. The result lists claims of that run for other
        artifacts.

        Raises InvalidInput or Unsupported if the cache cannot be rendered or the
        cluster rejects it. Raises NameConflict, without applying anything, if an object
        has another owner. Raises StorageClassMissing instead of creating a claim that
        could never bind, and ServerError while a volume cannot be expanded yet.
        """
        check_caller(MODEL_CACHE, order.namespace, order.name)
        cluster = await self.clusters.at(order.connection)
        wanted = _input(order)
        with as_activity_errors():
            artifact = read_artifact(wanted)
            options = options_of(wanted)
            claim = claim_name(wanted)
            read_volume(order.spec)
        credential = await read_together(
            self.store, order.namespace, references_of(artifact, options)
        )
        targets = ArtifactObjects.of(
            claim, workload_namespace(order.namespace, self.settings)
        )
        adopted: set[str] = set()
        async with heartbeating() as report:
            while True:
                async with cluster.applying():
                    outcome = await self._apply(
                        cluster, targets, order, wanted, credential
                    )
                adopted.update(outcome.adopted)
                if isinstance(outcome, CacheApplied):
                    return outcome.model_copy(update={"adopted": sorted(adopted)})
                # Deleting a mounted claim, or a pod that does not end, may take long,
                # so the slot is released for other applies.
                await Deleter(
                    cluster, outcome.owner_uid, report, self.force_after
                ).until_gone([outcome.target])

    async def _apply(
        self,
        cluster: ClusterApi,
        targets: ArtifactObjects,
        order: ApplyCache,
        wanted: CacheInput,
        credential: StoredCredential,
    ) -> CacheApplied | Obstacle:
        """Apply the objects, or return the first object that must be deleted before."""
        live = await read_live(cluster, targets)
        adopted = sorted(await adoptable(live, order))
        if obstacle := await obstacle_of(cluster, targets, live, order, adopted):
            return obstacle
        await check_storage_class(cluster, order, live.volume)
        artifact = read_artifact(wanted)
        kept, warnings = await immutable_fields(
            cluster,
            live.volume,
            artifact.size_gib,
            order.storage_class_name,
            read_volume(order.spec).access_mode,
        )
        rendered = _render(
            replace(wanted, credential_missing=bool(credential.missing), **kept),
            order,
            self.settings,
        )
        shared = targets.volume.namespace == self.settings.workload_namespace
        await ensure_namespace(
            cluster,
            targets.volume.namespace,
            f"{MODEL_CACHE} {order.namespace}/{order.name}",
            shared=shared,
        )
        stored = await cluster.apply(rendered.objects[0].manifest)
        job_uid = ""
        if order.hydrate and not rendered.held:
            for copy in rendered.copies:
                await cluster.apply(await self._filled(copy))
            await self._write_pull_secrets(cluster, order, targets.volume.name)
            job_uid = await _ensure_job(
                cluster,
                targets.job,
                live.job,
                rendered.objects[-1].manifest,
                order.failed_job_uid,
            )
            if not job_uid:
                return Obstacle(targets.job, order.uid, adopted)
        own = ObjectOwner(MODEL_CACHE, order.namespace, order.name, order.uid)
        return CacheApplied(
            claim=targets.volume.name,
            artifact_key=artifact.key,
            volume_digest=content_digest(stored),
            access_mode=stored["spec"]["accessModes"][0],
            job_uid=job_uid,
            credential_version=credential.version,
            credential_missing=credential.missing if rendered.held else "",
            adopted=adopted,
            earlier=await earlier_claims(cluster, targets, own),
            warnings=[*rendered.warnings, *warnings],
        )

    async def _filled(self, copy: PropagatedCopy) -> Json:
        """Return the copy with its data and the annotations of its source and version.

        The watch of the cluster compares these annotations to detect a changed source.
        """
        # Read the version before the data: if the source changes in between, the copy
        # is written once more.
        source = await self.store.describe(copy.source_namespace, copy.source_name)
        notes = {}
        if source:
            notes = {
                labels.SOURCE: f"{source.kind}/{source.name}",
                labels.SOURCE_VERSION: source.version,
            }
        metadata = copy.manifest["metadata"]
        marked = {**metadata, "annotations": {**metadata["annotations"], **notes}}
        return {
            **copy.manifest,
            **await read_copy_data(self.store, copy),
            "metadata": marked,
        }

    async def _write_pull_secrets(
        self, cluster: ClusterApi, order: ApplyCache, claim: str
    ) -> None:
        """Write the platform's pull secrets for the Job's image.

        Raises CredentialsInvalid if one cannot be used.
        """
        copies, problems = await pull_secret_copies(
            self.store, order.namespace, self.settings
        )
        if problems:
            raise CredentialsInvalid("; ".join(problems.values()), REASON_MISSING)
        for copy in copies:
            await write_copy(cluster, self.store, copy, claim, order.uid)

    @activity.defn
    async def delete_cache_objects(
        self, order: DeleteCacheObjects
    ) -> CacheObjectsDeleted:
        """Run the given steps of `CACHE_STEPS`, each until its objects are deleted.

        Objects of other owners are kept and listed in the result.
        """
        check_caller(MODEL_CACHE, order.namespace)
        own = ObjectOwner(MODEL_CACHE, *caller_of(MODEL_CACHE), order.uid)
        cluster = await self.clusters.at(order.connection)
        targets = ArtifactObjects.of(
            order.claim, workload_namespace(order.namespace, self.settings)
        )
        by_kind = {target.kind: target for target in targets}
        skipped: list[str] = []
        async with heartbeating() as report:
            deleter = Deleter(cluster, order.uid, report, self.force_after)
            for step in CACHE_STEPS:
                if step.number not in order.steps:
                    continue
                step_targets = [
                    target
                    for kind, target in by_kind.items()
                    if tuple(kind) in step.kinds
                ]
                if targets.credential in step_targets:
                    step_targets += await further_copies(cluster, targets)
                skipped += (await deleter.until_gone(step_targets)).skipped
                if step.number == CACHE_CREDENTIAL:
                    shared = await copies_of(
                        cluster, targets.credential.namespace, order.claim
                    )
                    skipped += await release_all(cluster, shared, order.claim)
            earlier = (
                await earlier_claims(cluster, targets, own) if order.search else []
            )
        return CacheObjectsDeleted(skipped=skipped, earlier=earlier)

    @activity.defn
    async def await_credential(self, order: AwaitCredential) -> str:
        """Wait until the version of a credential changes, and return the new version.

        The version of a deleted credential is empty.
        """
        check_caller(MODEL_CACHE, order.namespace)
        references = [
            KeyOf(order.name, order.key),
            *(KeyOf(other.name, other.key) for other in order.others),
        ]
        async with heartbeating():
            while True:
                found = await read_together(self.store, order.namespace, references)
                if found.version != order.version:
                    return found.version
                await asyncio.sleep(_STORE_POLL_SECONDS)


def _input(order: ApplyCache) -> CacheInput:
    return CacheInput(
        namespace=order.namespace,
        name=order.name,
        uid=order.uid,
        generation=order.generation,
        cluster=order.cluster,
        spec=order.spec,
        revision=order.revision,
        ready=not order.hydrate,
    )


def _render(
    wanted: CacheInput, order: ApplyCache, settings: RenderSettings
) -> Rendered:
    with as_activity_errors():
        cluster = ClusterInput.assumed(
            order.cluster,
            storage_class_name=order.storage_class_name,
            scheduler_type=order.scheduler_type,
        )
        return render_cache(wanted, cluster, settings)


async def _ensure_job(
    cluster: ClusterApi, target: ObjectId, live: Json | None, manifest: Json, spent: str
) -> str:
    """Ensure that a Job as rendered exists which is not the `spent` one.

    Returns its uid, or "" while another Job, or a pod of one, still exists: two
    downloads into one volume would delete each other's files.
    """
    async for _ in poll_intervals():
        if live:
            replaced = (
                live["metadata"].get("deletionTimestamp")
                or live["metadata"]["uid"] == spent
                or _hash(live) != _hash(manifest)
            )
            return "" if replaced else str(live["metadata"]["uid"])
        if await dependents_of(cluster, target):
            return ""
        live = await cluster.create(manifest) or await cluster.get(target)
    raise AssertionError("poll_intervals never ends")


def _hash(job: Json) -> str:
    return str((job["metadata"].get("annotations") or {}).get(labels.TEMPLATE_HASH, ""))
