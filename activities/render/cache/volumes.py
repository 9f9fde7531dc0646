"""Render one ModelCache on one cluster.

Each artifact has a volume, and a Job that fills it until it is staged. A changed
revision is another artifact with another volume, so the files of running engines never
change. A token is on the cluster only while it is needed.
"""

from dataclasses import dataclass

from activities.render.cache.access import check_plain_http, options_of
from activities.render.cache.artifact import (
    Artifact,
    WantedVolume,
    artifact_key,
    claim_name,
    read_artifact,
    read_volume,
)
from activities.render.cache.container import CONTAINER, REQUIREMENTS, Hydrator
from activities.render.cache.hydration import FINAL_EXIT_CODES
from activities.render.cache.options import HydrationOptions, SourceCopy, credential_of
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.findings import NotRenderable
from activities.render.inputs.settings import RenderSettings, workload_namespace
from activities.render.objects import components, inventory_keys, queues
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    RenderOwner,
    compact,
    labelled_item,
    set_hash,
)
from activities.render.objects.propagation import (
    SECRET,
    PropagatedCopy,
    copy_manifest,
    pull_secrets,
)
from activities.render.objects.rendered import Rendered
from api_types import labels, names
from api_types.digests import content_hash
from api_types.messages.cluster_work import ClusterFacts
from api_types.pins import apiversions, images

SECRET_MISSING = "AuthSecretMissing"  # noqa: S105 -- a reason

__all__ = ["NoSharedStorageClass", "artifact_key", "claim_name", "render_cache"]

_ATTEMPTS = 3


class NoSharedStorageClass(NotRenderable):
    """The cluster reports no storage class that many pods can mount."""

    reason = "StorageClassMissing"


class ServiceAccountRefused(NotRenderable):
    """The cache names a service account, but its namespace on the cluster is shared.

    Accounts in a shared namespace may belong to other tenants.
    """

    reason = "ServiceAccountRefused"


def render_cache(
    cache: CacheInput, cluster: ClusterInput, settings: RenderSettings
) -> Rendered:
    """Return the volume claim and, until it is staged, the Secret copies and the Job.

    Returns no objects if each pod has its own volume. If a credential is missing, only
    the claim is rendered, and `held` is the reason. Raises InvalidSpec,
    NoSharedStorageClass, PlainHttpRefused or ServiceAccountRefused.
    """
    artifact = read_artifact(cache)
    namespace = workload_namespace(cache.namespace, settings)
    if artifact.by_pods:
        claim = names.cache_claim_name(cache.namespace, cache.name, artifact.key)
        return Rendered(
            objects=(),
            hash=set_hash([]),
            warnings=(),
            workload_name=claim,
            namespace=namespace,
        )
    if not cache.ready:
        check_plain_http(cache, artifact, settings)
    wanted = read_volume(cache.spec)
    storage_class = _storage_class(cache, wanted, cluster)
    claim = names.cache_claim_name(cache.namespace, cache.name, artifact.key)
    options = options_of(cache)
    _check_service_account(cache, options, namespace)
    access_mode = cache.volume_access or wanted.access_mode
    volume = _Volume(
        cache,
        artifact,
        options,
        claim,
        namespace,
        cluster.facts,
        settings,
        storage_class,
        access_mode,
    )
    objects = [volume.claim_item()]
    copies: list[PropagatedCopy] = []
    held = ""
    if cache.credential_missing and not cache.ready:
        held = SECRET_MISSING if artifact.credential or options.copies else ""
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


def _storage_class(
    cache: CacheInput, wanted: WantedVolume, cluster: ClusterInput
) -> str:
    found = (
        cache.volume_class or wanted.storage_class or cluster.facts.storage_class_name
    )
    if not found:
        problem = (
            f"cluster {cluster.name} reports no storage class for caches, "
            "so it cannot stage models"
        )
        raise NoSharedStorageClass(
            f"ModelCache {cache.namespace}/{cache.name}", (problem,)
        )
    return found


def _check_service_account(
    cache: CacheInput, options: HydrationOptions, namespace: str
) -> None:
    if options.service_account and namespace != cache.namespace and not cache.ready:
        problem = (
            "spec.hydration.serviceAccountName is refused where all tenants share "
            f"namespace {namespace}"
        )
        raise ServiceAccountRefused(
            f"ModelCache {cache.namespace}/{cache.name}", (problem,)
        )


@dataclass(frozen=True)
class _Volume:
    """The objects of one artifact on one cluster."""

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
    def owner(self) -> RenderOwner:
        cache = self.cache
        return RenderOwner(
            "ModelCache",
            cache.namespace,
            cache.name,
            cache.uid,
            cache.generation,
            (labels.CACHE, self.claim),
        )

    @property
    def name_labels(self) -> dict[str, str]:
        return {labels.MODEL_CACHE: names.label_value(self.cache.name)}

    def item(
        self,
        key: str,
        component: str,
        manifest: Json,
        extra_labels: dict[str, str] | None = None,
        notes: dict[str, str] | None = None,
    ) -> RenderedObject:
        return labelled_item(
            self.owner,
            key,
            component,
            manifest,
            extra_labels={**self.name_labels, **(extra_labels or {})},
            extra_annotations=notes,
        )

    def claim_item(self) -> RenderedObject:
        manifest = {
            "apiVersion": apiversions.CORE,
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self.claim, "namespace": self.namespace},
            "spec": {
                "accessModes": [self.access_mode],
                "storageClassName": self.storage_class,
                "resources": {
                    "requests": {
                        "storage": self.cache.volume_size
                        or f"{self.artifact.size_gib}Gi"
                    }
                },
            },
        }
        return self.item(inventory_keys.CACHE_VOLUME, components.CACHE, manifest)

    def credential_copies(self) -> list[PropagatedCopy]:
        return [
            self._copy(copy)
            for copy in (credential_of(self.artifact), *self.options.copies)
            if copy.name
        ]

    def _secret_name(self, copy: SourceCopy) -> str:
        return names.cache_copy_name(self.claim, copy.purpose)

    def _copy(self, source: SourceCopy) -> PropagatedCopy:
        """Return the copy as a Secret for any source, so that copies have one kind."""
        manifest = copy_manifest(
            SECRET,
            source.type,
            self.namespace,
            names.cache_copy_name(self.claim, source.purpose),
        )
        key = (
            inventory_keys.CACHE_CREDENTIAL
            if source.purpose == names.CACHE_CREDENTIAL
            else f"{inventory_keys.CACHE_CREDENTIAL}-{source.purpose}"
        )
        item = self.item(key, components.SECRET, manifest)
        return PropagatedCopy(
            item.key,
            SECRET,
            self.cache.namespace,
            source.name,
            (source.key,) if source.key else (),
            item.manifest,
        )

    def _pod(self) -> Json:
        container, volumes = Hydrator(
            self.artifact, self.options, self.settings, self._secret_name
        ).build()
        kai = self.facts.scheduler_type == queues.KAI
        claim = {"claimName": self.claim}
        return compact(
            **self.options.pod_fields(),
            automountServiceAccountToken=False,
            containers=[container],
            imagePullSecrets=[
                *self.options.pull_references(self._secret_name),
                *pull_secrets(self.settings),
            ],
            restartPolicy="Never",
            schedulerName=queues.KAI_SCHEDULER if kai else None,
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
            volumes=[{"name": "artifact", "persistentVolumeClaim": claim}, *volumes],
        )

    def job_item(self) -> RenderedObject:
        queue = queues.queue_name(self.cache.namespace)
        pod_labels = {**self.name_labels, labels.CACHE: self.claim}
        if self.facts.scheduler_type == queues.KAI:
            pod_labels[queues.KAI_QUEUE] = queue
        pod = self._pod()
        failure = {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": CONTAINER,
                "operator": "In",
                "values": list(FINAL_EXIT_CODES),
            },
        }
        disruption = {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
        manifest: Json = {
            "apiVersion": apiversions.BATCH,
            "kind": "Job",
            "metadata": {
                "name": names.cache_job_name(self.claim),
                "namespace": self.namespace,
            },
            # There is no TTL: a finished Job that deleted itself would look like a Job
            # that was never created.
            "spec": compact(
                backoffLimit=_ATTEMPTS,
                activeDeadlineSeconds=self.settings.cache_active_deadline_seconds
                or None,
                podFailurePolicy={"rules": [failure, disruption]},
                template={"metadata": {"labels": pod_labels}, "spec": pod},
            ),
        }
        kueue = {}
        if self.facts.scheduler_type == queues.KUEUE:
            kueue = {queues.KUEUE_QUEUE: queue}
        # A Job is immutable. This hash shows whether a new Job would have other
        # differences than its generation.
        template_hash = content_hash(
            _chosen(manifest["spec"], self.settings.image_mirror)
        )
        item = self.item(
            inventory_keys.CACHE_JOB,
            components.CACHE,
            manifest,
            kueue,
            {labels.TEMPLATE_HASH: template_hash},
        )
        return RenderedObject(item.key, item.manifest, item.hash, create_only=True)


def _chosen(spec: Json, mirror: str) -> Json:
    """Return the spec of a Job without the fields that change only with a release.

    A running download continues with the program with which it was started.
    """
    pod = spec["template"]["spec"]
    container = {
        name: value for name, value in pod["containers"][0].items() if name != "command"
    }
    container["env"] = [
        entry for entry in container["env"] if entry["name"] != REQUIREMENTS
    ]
    if container["image"] in (
        images.mirrored(images.HYDRATION, mirror),
        images.mirrored(images.KIT, mirror),
    ):
        del container["image"]
        container |= {"mirror": mirror} if mirror else {}
    return {
        **spec,
        "template": {**spec["template"], "spec": {**pod, "containers": [container]}},
    }
