"""Render one ModelCache on one cluster: a volume per artifact, and while it is not staged the Job that fills it.

A changed revision is another artifact with a volume of its own, so that the files of running engines never change. A token is on the
cluster only while it is needed.
"""

import json
from dataclasses import dataclass

from activities.render.cache.artifact import (
    SOURCE_HUGGINGFACE,
    SOURCE_OCI,
    SOURCE_S3,
    Artifact,
    BucketFolder,
    artifact_key,
    claim_name,
    read_artifact,
    read_volume,
)
from activities.render.cache.hydration import CLIENT_REQUIREMENTS, FINAL_EXIT_CODES, HUGGINGFACE, OCI, S3, S3_REQUIREMENTS
from activities.render.cache.options import HydrationOptions, SourceCopy, read_options
from activities.render.inputs.facts import CacheInput, ClusterInput
from activities.render.inputs.findings import Findings, NotRenderable
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

__all__ = ["StorageClassMissing", "artifact_key", "claim_name", "options_of", "render_cache"]

_TARGET = "/mnt/artifact"
# Hidden, so that no engine reads it as weights.
_WORK = f"{_TARGET}/.modelplane"
_SCRATCH_PATH = "/scratch"
_DOCKER_PATH = "/.docker"
_DOCKER_KEY = ".dockerconfigjson"
_CONTAINER = "hydrate"
_REQUIREMENTS = "MODELPLANE_CLIENT_REQUIREMENTS"
_ATTEMPTS = 3
_MESSAGE_POLICY = "FallbackToLogsOnError"


class StorageClassMissing(NotRenderable):
    """The cluster reports no storage class that many pods can mount."""

    reason = "StorageClassMissing"


class PlainHttpRefused(NotRenderable):
    """The cache asks for a registry without TLS, which the operator does not allow."""

    reason = "PlainHttpRefused"


class ServiceAccountRefused(NotRenderable):
    """The cache asks for a service account in a namespace that it shares with others, whose accounts are theirs."""

    reason = "ServiceAccountRefused"


def render_cache(cache: CacheInput, cluster: ClusterInput, settings: RenderSettings) -> Rendered:
    """Give the volume claim and, until the artifact is staged, the copy of its credential and the Job; nothing for an image that is pulled.

    Without the credential only the claim is rendered, and `held` says why. Raises InvalidSpec, StorageClassMissing,
    PlainHttpRefused or ServiceAccountRefused.
    """
    artifact = read_artifact(cache)
    namespace = workload_namespace(cache.namespace, settings)
    if artifact.pulled:
        claim = names.cache_claim_name(cache.namespace, cache.name, artifact.key)
        return Rendered(objects=(), hash=set_hash([]), warnings=(), workload_name=claim, namespace=namespace)
    if artifact.plain_http and not allows_plain_http(artifact, settings) and not cache.ready:
        s3 = artifact.source == SOURCE_S3
        field, setting = ("spec.s3.endpoint without TLS", "s3.allowPlainHttp") if s3 else ("spec.oci.plainHTTP", "oci.allowPlainHttp")
        problem = f"{field} is refused unless the operator sets {setting}"
        raise PlainHttpRefused(f"ModelCache {cache.namespace}/{cache.name}", (problem,))
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


def options_of(cache: CacheInput) -> HydrationOptions:
    """Read how the Jobs of a cache reach its source. Raises InvalidSpec with all problems."""
    findings = Findings()
    options = read_options(cache.spec, findings)
    findings.raise_if_any(f"ModelCache {cache.namespace}/{cache.name}")
    return options


def allows_plain_http(artifact: Artifact, settings: RenderSettings) -> bool:
    """Tell whether the operator allows the artifact's source without TLS."""
    return settings.allow_plain_s3 if artifact.source == SOURCE_S3 else settings.allow_plain_http


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
        key = "" if self.artifact.source == SOURCE_OCI else self.artifact.credential_key
        credential = SourceCopy(names.CACHE_CREDENTIAL, SECRET, self.artifact.credential, key)
        return [self._copy(copy) for copy in (credential, *self.options.copies) if copy.name]

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
        container, volumes = self._oci() if self.artifact.source == SOURCE_OCI else (self._python(), [])
        pod_labels = {**self.name_labels, labels.CACHE: self.claim, **({queues.KAI_QUEUE: queue} if kai else {})}
        container["env"] += self.options.variables(self.claim, with_hub=self.artifact.source == SOURCE_HUGGINGFACE)
        container["volumeMounts"] += self.options.mounts()
        pod = compact(
            **self.options.pod_fields(),
            automountServiceAccountToken=False,
            containers=[container],
            imagePullSecrets=[*self.options.pull_references(self.claim), *pull_secrets(self.settings)],
            restartPolicy="Never",
            schedulerName=queues.KAI_SCHEDULER if kai else None,
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
            volumes=[{"name": "artifact", "persistentVolumeClaim": {"claimName": self.claim}}, *volumes, *self.options.volumes(self.claim)],
        )
        failure = {"action": "FailJob", "onExitCodes": {"containerName": _CONTAINER, "operator": "In", "values": list(FINAL_EXIT_CODES)}}
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

    def _container(self, image: str, command: list[str], environment: dict[str, str]) -> Json:
        common = {
            "MODELPLANE_ARTEFACT_KEY": self.artifact.key,
            "MODELPLANE_TARGET": _TARGET,
            "MODELPLANE_REVISION": self.artifact.revision,
        }
        return {
            "name": _CONTAINER,
            "image": image,
            "command": command,
            "env": [{"name": name, "value": value} for name, value in (*common.items(), *environment.items())],
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            # Root stays allowed: some shared file systems give their root folder to root alone.
            "securityContext": {"allowPrivilegeEscalation": False},
            "terminationMessagePolicy": _MESSAGE_POLICY,
            "volumeMounts": [{"name": "artifact", "mountPath": _TARGET}],
        }

    def _python(self) -> Json:
        """Give the container of a program in Python; a credential is the value of a variable."""
        folder = self.artifact.folder
        program, environment, secret = (
            (S3, self._bucket(folder), "MODELPLANE_S3_CREDENTIALS") if folder else (HUGGINGFACE, self._hub(), "HF_TOKEN")
        )
        if self.settings.pip_index_url:
            environment["PIP_INDEX_URL"] = self.settings.pip_index_url
        container = self._container(self.settings.hydration_image, ["python3", "-c", program], environment)
        if self.artifact.credential:
            reference = {"name": names.cache_credential_name(self.claim), "key": self.artifact.credential_key}
            container["env"].append({"name": secret, "valueFrom": {"secretKeyRef": reference}})
        return container

    def _bucket(self, folder: BucketFolder) -> dict[str, str]:
        return {
            "MODELPLANE_S3_ENDPOINT": folder.endpoint,
            "MODELPLANE_S3_REGION": folder.region,
            "MODELPLANE_S3_BUCKET": folder.bucket,
            "MODELPLANE_S3_PREFIX": folder.prefix,
            "MODELPLANE_S3_ADDRESSING": "path" if folder.path_style else "virtual",
            _REQUIREMENTS: S3_REQUIREMENTS,
            # The identity of a node is not for those who may create a cache.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _hub(self) -> dict[str, str]:
        return {
            "MODELPLANE_REPO": self.artifact.origin,
            _REQUIREMENTS: CLIENT_REQUIREMENTS,
            "HF_HOME": f"{_WORK}/huggingface",
            # The last lines of the log become the message of a failed pod.
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **({"HF_ENDPOINT": self.settings.hub_endpoint} if self.settings.hub_endpoint else {}),
            **_patterns(self.artifact),
        }

    def _oci(self) -> tuple[Json, list[Json]]:
        scratch_on_node = self.artifact.scratch_on_node
        environment = {
            "MODELPLANE_IMAGE": self.artifact.image,
            "MODELPLANE_PLAIN_HTTP": "true" if self.artifact.plain_http else "false",
            "KITOPS_HOME": f"{_SCRATCH_PATH if scratch_on_node else _WORK}/kit",
        }
        container = self._container(self.settings.kit_image, ["/bin/sh", "-c", OCI], environment)
        # The image names another user, who could not write where the root folder is root's.
        container["securityContext"]["runAsUser"] = 0
        volumes: list[Json] = []
        if scratch_on_node:
            volumes.append({"name": "scratch", "emptyDir": {}})
            container["volumeMounts"].append({"name": "scratch", "mountPath": _SCRATCH_PATH})
        if self.artifact.credential:
            container["env"].append({"name": "DOCKER_CONFIG", "value": _DOCKER_PATH})
            items = [{"key": _DOCKER_KEY, "path": "config.json"}]
            volumes.append({"name": "registry", "secret": {"secretName": names.cache_credential_name(self.claim), "items": items}})
            container["volumeMounts"].append({"name": "registry", "mountPath": _DOCKER_PATH, "readOnly": True})
        return container, volumes


def _patterns(artifact: Artifact) -> dict[str, str]:
    """Give the patterns of files as the program reads them: JSON lists, and no variable for none."""
    patterns = {"MODELPLANE_ALLOW_PATTERNS": artifact.allow, "MODELPLANE_IGNORE_PATTERNS": artifact.ignore}
    return {name: json.dumps(values) for name, values in patterns.items() if values}


def _chosen(spec: Json, mirror: str) -> Json:
    """Give the spec of a Job without what a release decides alone: a download that runs goes on with what it was started with."""
    pod = spec["template"]["spec"]
    container = {name: value for name, value in pod["containers"][0].items() if name != "command"}
    container["env"] = [entry for entry in container["env"] if entry["name"] != _REQUIREMENTS]
    if container["image"] in (images.mirrored(images.HYDRATION, mirror), images.mirrored(images.KIT, mirror)):
        del container["image"]
        container |= {"mirror": mirror} if mirror else {}
    return {**spec, "template": {**spec["template"], "spec": {**pod, "containers": [container]}}}
