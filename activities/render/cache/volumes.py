"""Render one ModelCache on one cluster: a volume per artifact, and while it is not staged the Job that fills it.

A changed revision is another artifact with a volume of its own, so that the files of running engines never change. A token is on the
cluster only while it is needed.
"""

from dataclasses import dataclass

from activities.render.cache.access import check_plain_http, options_of
from activities.render.cache.artifact import Artifact, artifact_key, claim_name, read_artifact, read_volume
from activities.render.cache.container import CONTAINER, REQUIREMENTS, Hydrator
from activities.render.cache.hydration import FINAL_EXIT_CODES
from activities.render.cache.options import HydrationOptions, SourceCopy, credential_of
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.findings import NotRenderable
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects import components, inventory_keys, queues
from activities.render.objects.manifest import Item, Json, Owner, compact, labelled_item, set_hash
from activities.render.objects.propagation import SECRET, Copy, copy_manifest, pull_secrets
from activities.render.objects.rendered import Rendered
from api_types import labels, names
from api_types.digests import content_hash
from api_types.messages.cluster_work import ClusterFacts
from api_types.pins import apiversions, images

SECRET_MISSING = "AuthSecretMissing"  # noqa: S105 -- a reason

__all__ = ["StorageClassMissing", "artifact_key", "claim_name", "render_cache"]

_ATTEMPTS = 3


class StorageClassMissing(NotRenderable):
    """The cluster reports no storage class that many pods can mount."""

    reason = "StorageClassMissing"


class ServiceAccountRefused(NotRenderable):
    """The cache asks for a service account in a namespace that it shares with others, whose accounts are theirs."""

    reason = "ServiceAccountRefused"


def render_cache(cache: CacheInput, cluster: ClusterInput, settings: RenderSettings) -> Rendered:
    """Give the volume claim and, until the artifact is staged, the copy of its credential and the Job; nothing where pods have their own.

    Without the credential only the claim is rendered, and `held` says why. Raises InvalidSpec, StorageClassMissing,
    PlainHttpRefused or ServiceAccountRefused.
    """
    artifact = read_artifact(cache)
    namespace = workload_namespace(cache.namespace, settings)
    if artifact.by_pods:
        claim = names.cache_claim_name(cache.namespace, cache.name, artifact.key)
        return Rendered(objects=(), hash=set_hash([]), warnings=(), workload_name=claim, namespace=namespace)
    if not cache.ready:
        check_plain_http(cache, artifact, settings)
    wanted = read_volume(cache.spec)
    storage_class = cache.volume_class or wanted.storage_class or cluster.facts.storage_class_name
    if not storage_class:
        problem = f"cluster {cluster.name} reports no storage class for caches: it cannot stage models"
        raise StorageClassMissing(f"ModelCache {cache.namespace}/{cache.name}", (problem,))
    claim = names.cache_claim_name(cache.namespace, cache.name, artifact.key)
    options = options_of(cache)
    if options.service_account and namespace != cache.namespace and not cache.ready:
        problem = f"spec.hydration.serviceAccountName is refused where all tenants share namespace {namespace}"
        raise ServiceAccountRefused(f"ModelCache {cache.namespace}/{cache.name}", (problem,))
    access_mode = cache.volume_access or wanted.access_mode
    volume = _Volume(cache, artifact, options, claim, namespace, cluster.facts, settings, storage_class, access_mode)
    objects = [volume.claim_item()]
    copies: list[Copy] = []
    held = SECRET_MISSING if cache.credential_missing and (artifact.credential or options.copies) and not cache.ready else ""
    if not cache.ready and not held:
        copies = volume.credential_copies()
        objects.append(volume.job_item())
    return Rendered(
        objects=tuple(objects),
        hash=set_hash(objects),
        warnings=(),
        workload_name=claim,
        namespace=volume.namespace,
        held=held,
        copies=tuple(copies),
    )


@dataclass(frozen=True)
class _Volume:
    """One artifact's place on one cluster."""

    cache: CacheInput
    artifact: Artifact
    options: HydrationOptions
    claim: str
    namespace: str
    facts: ClusterFacts
    settings: RenderSettings
    storage_class: str
    access_mode: str

    @property
    def owner(self) -> Owner:
        cache = self.cache
        return Owner("ModelCache", cache.namespace, cache.name, cache.uid, cache.generation, (labels.CACHE, self.claim))

    @property
    def name_labels(self) -> dict[str, str]:
        return {labels.MODEL_CACHE: names.label_value(self.cache.name)}

    def item(
        self, key: str, component: str, manifest: Json, extra_labels: dict[str, str] | None = None, notes: dict[str, str] | None = None
    ) -> Item:
        return labelled_item(
            self.owner, key, component, manifest, extra_labels={**self.name_labels, **(extra_labels or {})}, extra_annotations=notes
        )

    def claim_item(self) -> Item:
        manifest = {
            "apiVersion": apiversions.CORE,
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self.claim, "namespace": self.namespace},
            "spec": {
                "accessModes": [self.access_mode],
                "storageClassName": self.storage_class,
                "resources": {"requests": {"storage": self.cache.volume_size or f"{self.artifact.size_gib}Gi"}},
            },
        }
        return self.item(inventory_keys.CACHE_VOLUME, components.CACHE, manifest)

    def credential_copies(self) -> list[Copy]:
        return [self._copy(copy) for copy in (credential_of(self.artifact), *self.options.copies) if copy.name]

    def _secret_name(self, copy: SourceCopy) -> str:
        return names.cache_copy_name(self.claim, copy.purpose)

    def _copy(self, source: SourceCopy) -> Copy:
        """Copy as a Secret, whatever the source is: all copies of a cache are found by one kind."""
        manifest = copy_manifest(SECRET, source.type, self.namespace, names.cache_copy_name(self.claim, source.purpose))
        key = (
            inventory_keys.CACHE_CREDENTIAL
            if source.purpose == names.CACHE_CREDENTIAL
            else f"{inventory_keys.CACHE_CREDENTIAL}-{source.purpose}"
        )
        item = self.item(key, components.SECRET, manifest)
        return Copy(item.key, SECRET, self.cache.namespace, source.name, (source.key,) if source.key else (), item.manifest)

    def job_item(self) -> Item:
        kai = self.facts.scheduler_type == queues.KAI
        queue = queues.queue_name(self.cache.namespace)
        container, volumes = Hydrator(self.artifact, self.options, self.settings, self._secret_name).build()
        pod_labels = {**self.name_labels, labels.CACHE: self.claim, **({queues.KAI_QUEUE: queue} if kai else {})}
        pod = compact(
            **self.options.pod_fields(),
            automountServiceAccountToken=False,
            containers=[container],
            imagePullSecrets=[*self.options.pull_references(self._secret_name), *pull_secrets(self.settings)],
            restartPolicy="Never",
            schedulerName=queues.KAI_SCHEDULER if kai else None,
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
            volumes=[{"name": "artifact", "persistentVolumeClaim": {"claimName": self.claim}}, *volumes],
        )
        failure = {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(FINAL_EXIT_CODES)}}
        disruption = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        manifest: Json = {
            "apiVersion": apiversions.BATCH,
            "kind": "Job",
            "metadata": {"name": names.cache_job_name(self.claim), "namespace": self.namespace},
            # No TTL: a finished Job that deleted itself could not be told from one that was never created.
            "spec": compact(
                backoffLimit=_ATTEMPTS,
                activeDeadlineSeconds=self.settings.cache_active_deadline_seconds or None,
                podFailurePolicy={"rules": [failure, disruption]},
                template={"metadata": {"labels": pod_labels}, "spec": pod},
            ),
        }
        kueue = {queues.KUEUE_QUEUE: queue} if self.facts.scheduler_type == queues.KUEUE else {}
        # A Job is immutable: this hash tells a Job that would be different from one that only has another generation.
        template_hash = content_hash(_chosen(manifest["spec"], self.settings.image_mirror))
        item = self.item(inventory_keys.CACHE_JOB, components.CACHE, manifest, kueue, {labels.TEMPLATE_HASH: template_hash})
        return Item(item.key, item.manifest, item.hash, create_only=True)


def _chosen(spec: Json, mirror: str) -> Json:
    """Give the spec of a Job without what a release decides alone: a download that runs goes on with what it was started with."""
    pod = spec["template"]["spec"]
    container = {name: value for name, value in pod["containers"][0].items() if name != "command"}
    container["env"] = [entry for entry in container["env"] if entry["name"] != REQUIREMENTS]
    if container["image"] in (images.mirrored(images.HYDRATION, mirror), images.mirrored(images.KIT, mirror)):
        del container["image"]
        container |= {"mirror": mirror} if mirror else {}
    return {**spec, "template": {**spec["template"], "spec": {**pod, "containers": [container]}}}
