"""Stage one artifact of a ModelCache on one cluster, and delete it there.

Every activity is idempotent and may be killed between any two requests. An existing
volume keeps its immutable fields. A Job is created and never changed. A credential is
on the cluster only while a Job needs it. Its value is read from the store only when it
is written to the cluster.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from temporalio import activity

from activities.caches.credentials import KeyOf, read_together, references_of
from activities.caches.predecessors import ended_uids, other_claims
from activities.caller import check_caller
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    Json,
    ObjectId,
    Selection,
)
from activities.cluster_objects.deletion import (
    Deleter,
    dependents_of,
    list_served,
    poll_intervals,
)
from activities.cluster_objects.namespaces import ensure_namespace
from activities.cluster_objects.ownership import ObjectOwner, conflict, owner_of
from activities.heartbeat import heartbeating
from activities.observe.cache import BOUND, MODEL_CACHE
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
from api_types import labels, names
from api_types.errors import (
    CredentialsInvalid,
    NameConflict,
    ServerError,
    StorageClassMissing,
)
from api_types.messages.caches import (
    ApplyCache,
    AwaitCredential,
    CacheApplied,
    DeleteCacheObjects,
    EarlierClaim,
)
from api_types.messages.cluster_work import TeardownStepResult
from api_types.text.quantity import parse_quantity

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
        targets = _Targets.of(claim, workload_namespace(order.namespace, self.settings))
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
        targets: "_Targets",
        order: ApplyCache,
        wanted: CacheInput,
        credential: StoredCredential,
    ) -> "CacheApplied | _Obstacle":
        """Apply the objects, or return the first object that must be deleted before."""
        live = await _read(cluster, targets)
        adopted = sorted(await _adoptable(live, order))
        if obstacle := await _obstacle(cluster, targets, live, order, adopted):
            return obstacle
        await _check_storage_class(cluster, order, live.volume)
        artifact = read_artifact(wanted)
        kept, warnings = await _immutable_fields(
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
                return _Obstacle(targets.job, order.uid, adopted)
        return CacheApplied(
            claim=targets.volume.name,
            artifact_key=artifact.key,
            volume_digest=content_digest(stored),
            access_mode=stored["spec"]["accessModes"][0],
            job_uid=job_uid,
            credential_version=credential.version,
            credential_missing=credential.missing if rendered.held else "",
            adopted=adopted,
            earlier=await _earlier(cluster, targets, order),
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
    ) -> TeardownStepResult:
        """Run the given steps of `CACHE_STEPS`, each until its objects are deleted.

        Objects of other owners are kept and listed in the result.
        """
        check_caller(MODEL_CACHE, order.namespace)
        cluster = await self.clusters.at(order.connection)
        targets = _Targets.of(
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
                    step_targets += await _further_copies(cluster, targets)
                skipped += (await deleter.until_gone(step_targets)).skipped
                if step.number == CACHE_CREDENTIAL:
                    shared = await copies_of(
                        cluster, targets.credential.namespace, order.claim
                    )
                    skipped += await release_all(cluster, shared, order.claim)
        return TeardownStepResult(skipped=skipped)

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


class _Targets(NamedTuple):
    """The objects of one artifact, all named after its claim."""

    volume: ObjectId
    credential: ObjectId
    job: ObjectId

    @classmethod
    def of(cls, claim: str, namespace: str) -> "_Targets":
        return cls(
            ObjectId(kinds.VOLUME_CLAIM, namespace, claim),
            ObjectId(kinds.SECRET, namespace, names.cache_credential_name(claim)),
            ObjectId(kinds.JOB, namespace, names.cache_job_name(claim)),
        )


async def _further_copies(cluster: ClusterApi, targets: _Targets) -> list[ObjectId]:
    """Return the artifact's Secrets other than its credential.

    Their number depends on the spec with which they were applied.
    """
    selector = f"{labels.CACHE}={targets.volume.name}"
    listed = await list_served(
        cluster,
        Selection(kinds.SECRET, targets.volume.namespace, selector, metadata_only=True),
    )
    return [found for found in map(ObjectId.of, listed) if found != targets.credential]


class _Live(NamedTuple):
    volume: Json | None
    credential: Json | None
    job: Json | None


class _Obstacle(NamedTuple):
    """An object that must be deleted before the apply continues.

    `owner_uid` is the uid of its owner. `adopted` lists the earlier runs whose objects
    the cache adopts.
    """

    target: ObjectId
    owner_uid: str
    adopted: list[str]


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


async def _read(cluster: ClusterApi, targets: _Targets) -> _Live:
    return _Live(*await asyncio.gather(*(cluster.get(target) for target in targets)))


async def _adoptable(live: _Live, order: ApplyCache) -> set[str]:
    """Return the uids of ended runs of this cache whose objects exist.

    Raises NameConflict if an object has any other owner.
    """
    own = ObjectOwner(MODEL_CACHE, order.namespace, order.name, order.uid)
    foreign = [item for item in live if item and conflict(item, order.uid)]
    asked = set()
    for owner in map(owner_of, foreign):
        if owner.uid and owner._replace(uid=own.uid) == own:
            asked.add(owner.uid)
    ended = await ended_uids(activity.client(), own, asked) if asked else set[str]()
    conflicts = [
        conflict(item, order.uid) for item in foreign if owner_of(item).uid not in ended
    ]
    if conflicts:
        raise NameConflict(
            f"cluster {order.cluster}: {'; '.join(conflicts)}; "
            "delete it there or choose another name"
        )
    return ended


async def _earlier(
    cluster: ClusterApi, targets: _Targets, order: ApplyCache
) -> list[EarlierClaim]:
    """Return the claims for other artifacts that this cache or its ended runs made."""
    own = ObjectOwner(MODEL_CACHE, order.namespace, order.name, order.uid)
    found = await other_claims(cluster, own, targets.volume)
    others = set(found.values()) - {order.uid}
    ended = await ended_uids(activity.client(), own, others) if others else set[str]()
    return [
        EarlierClaim(claim=claim, uid=uid)
        for claim, uid in sorted(found.items())
        if uid in ended or uid == order.uid
    ]


async def _obstacle(
    cluster: ClusterApi,
    targets: _Targets,
    live: _Live,
    order: ApplyCache,
    adopted: Collection[str],
) -> _Obstacle | None:
    """Return the object that must be deleted before anything is applied, if any.

    A Job is deleted before the claim that its pods mount.
    """
    volume, job = live.volume, live.job
    if job and owner_of(job).uid in adopted:
        return _Obstacle(targets.job, owner_of(job).uid, list(adopted))
    if volume is None:
        # The Job filled a claim that no longer exists. Its state does not apply to the
        # next claim, which is empty.
        return _Obstacle(targets.job, owner_of(job).uid, list(adopted)) if job else None
    # An apply to a claim that is being deleted would be lost when the deletion ends.
    deleted = bool(volume["metadata"].get("deletionTimestamp"))
    if not deleted and not await _can_never_bind(
        cluster, volume, order.storage_class_name
    ):
        return None
    if job and not deleted:
        return _Obstacle(targets.job, owner_of(job).uid, list(adopted))
    return _Obstacle(targets.volume, owner_of(volume).uid, list(adopted))


async def _has_class(cluster: ClusterApi, name: str) -> bool:
    return await cluster.get(ObjectId(kinds.STORAGE_CLASS, "", name)) is not None


async def _can_never_bind(cluster: ClusterApi, volume: Json, class_name: str) -> bool:
    """Return whether an unbound claim has a missing class other than the ordered one.

    The class of a claim is immutable, so the claim must be replaced. It has no volume
    that could be lost.
    """
    held = str(volume["spec"].get("storageClassName", ""))
    if _is_bound(volume) or not class_name or held in ("", class_name):
        return False
    return not await _has_class(cluster, held)


async def _check_storage_class(
    cluster: ClusterApi, order: ApplyCache, volume: Json | None
) -> None:
    """Raise StorageClassMissing if an unbound claim has a class that does not exist."""
    wanted = (
        str(volume["spec"].get("storageClassName", ""))
        if volume
        else order.storage_class_name
    )
    if (
        not wanted
        or (volume and _is_bound(volume))
        or await _has_class(cluster, wanted)
    ):
        return
    named_by_cache = bool(read_volume(order.spec).storage_class)
    field = (
        "spec.volume.storageClassName of the ModelCache"
        if named_by_cache
        else "spec.cluster.existing.cache of the InferenceCluster"
    )
    raise StorageClassMissing(
        f"cluster {order.cluster} has no StorageClass {wanted}: create it there, or set "
        f"{field} to an existing one (volumes made by hand need a class with "
        "provisioner kubernetes.io/no-provisioner)"
    )


def _is_bound(volume: Json) -> bool:
    """Return whether a claim has or had a volume. A `Lost` claim had one."""
    return (
        bool(volume["spec"].get("volumeName"))
        or (volume.get("status") or {}).get("phase", "Pending") != "Pending"
    )


async def _immutable_fields(
    cluster: ClusterApi,
    volume: Json | None,
    size_gib: int,
    class_name: str,
    access_mode: str,
) -> tuple[Json, list[str]]:
    """Return the fields that an existing volume must keep, and warnings.

    The keys are fields of `CacheInput`. The storage class and the access mode of a
    claim are immutable. Its size is immutable where the class does not allow expansion.
    The API server would reject a claim that changes them.
    """
    if volume is None:
        return {}, []
    spec = volume["spec"]
    kept: Json = {
        "volume_class": spec.get("storageClassName", ""),
        "volume_access": spec["accessModes"][0],
    }
    warnings: list[str] = []
    if class_name and kept["volume_class"] != class_name:
        warnings.append(
            f"the volume keeps storage class {kept['volume_class']}; "
            f"{class_name} is used from the next artifact on"
        )
    if kept["volume_access"] != access_mode:
        warnings.append(
            f"the volume keeps access mode {kept['volume_access']}; "
            f"{access_mode} is used from the next artifact on"
        )
    phase = (volume.get("status") or {}).get("phase", "Pending")
    # The server normalizes quantities (`1024Gi` becomes `1Ti`), so compare parsed
    # values.
    held, wanted = str(spec["resources"]["requests"]["storage"]), f"{size_gib}Gi"
    growth = parse_quantity(wanted) - parse_quantity(held)
    if growth > 0 and phase != BOUND:
        # Only bound claims can be expanded.
        raise ServerError(
            f"volume claim {volume['metadata']['name']} is {phase}: "
            f"it can be expanded to {wanted} when it is Bound"
        )
    if growth > 0:
        storage_class = await cluster.get(
            ObjectId(kinds.STORAGE_CLASS, "", kept["volume_class"])
        )
        if not (storage_class or {}).get("allowVolumeExpansion"):
            kept["volume_size"] = held
            warnings.append(
                f"ExpansionUnsupported: storage class {kept['volume_class']} "
                f"does not allow expansion, the volume keeps {held}"
            )
    elif growth < 0:
        kept["volume_size"] = held
    return kept, warnings


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
