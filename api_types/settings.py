"""Every setting of the project, with its default.

A setting is a dotted key, such as `workloads.namespace`. Users set it in one YAML file,
whose path is in `MODELPLANE_CONFIG`, or in an environment variable,
`MODELPLANE_WORKLOADS__NAMESPACE`, which takes precedence (see `environment.py`). The
error for an unknown key or variable contains its name.
"""

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, IPvAnyNetwork, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from api_types import environment, labels
from api_types.hints import nearest
from api_types.limits import DENIED_NETWORKS_MAX, UPGRADES_AT_ONCE_MAX
from api_types.model_sources import read_image
from api_types.pins import images
from api_types.sections.base import SettingsSection, camel
from api_types.sections.clouds import EksSettings, GkeSettings, ProvisionSettings
from api_types.sections.front import FrontSettings
from api_types.setting_types import (
    IMAGE_CHECK,
    Address,
    AdoptRenderer,
    Affinity,
    BuildId,
    ChartMirror,
    ChartValues,
    ChartVersions,
    DeploymentName,
    Image,
    Mirror,
    ObjectName,
    OptionalObjectName,
    OptionalQuantity,
    OptionalUrl,
    PickerFlags,
    PickerImage,
    QualifiedName,
    RefusedAnnotation,
    Requests,
    Seconds,
    Tolerations,
    Url,
    WorkloadNamespace,
)
from api_types.text.reader import Unreadable, read_one

# A hundred times the number of settings.
_VALUES_MAX = 10_000
# Far more than the registries of one installation, and few enough for a pod.
_PULL_SECRETS_MAX = 8
_PICKERS_MAX = 16
_TOLERATIONS_MAX = 16
_WEIGHT_MAX = 1000

Network = IPv4Network | IPv6Network


class TemporalSettings(SettingsSection):
    """The connection to Temporal."""

    address: Address = Field(
        default="127.0.0.1:7233",
        description="Address of the Temporal frontend.",
    )
    namespace: str = Field(
        default="default",
        description="The Temporal namespace.",
    )
    tls: bool = Field(
        default=False,
        description="Connect with TLS.",
    )
    tls_server_ca: Path | None = Field(
        default=None,
        description="File with the authority of the server certificate, in PEM.",
    )
    tls_client_cert: Path | None = Field(
        default=None,
        description="File with the client certificate, in PEM. It excludes an API key.",
    )
    tls_client_key: Path | None = Field(
        default=None,
        description="File with the key of the client certificate.",
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File with an API key. A file is not visible in process listings.",
    )
    ui: str = Field(
        default="",
        description=(
            "Address of the Temporal UI, for the links that commands and the "
            "front show."
        ),
    )


class EncryptionSettings(SettingsSection):
    """Encryption of payloads in Temporal."""

    keys: dict[str, Path] = Field(
        default_factory=dict,
        description=(
            "Maps a key ID to a file with 32 bytes in base64. All keys decrypt. "
            "Without keys, payloads in Temporal are not encrypted."
        ),
    )
    active_key: str = Field(
        default="",
        description="ID of the key that encrypts.",
    )
    required: bool = Field(
        default=False,
        description=(
            "Reject messages that are not encrypted. By default they are "
            "accepted, even with keys."
        ),
    )


class QueueSettings(SettingsSection):
    """The task queues that this worker serves."""

    serve: tuple[str, ...] = Field(
        default=(),
        description=(
            "Task queues that this worker serves: `modelplane` and "
            "`modelplane-scheduler` (workflows), `modelplane-cloud`, "
            "`modelplane-clusters`, or the value of a cluster's annotation "
            f"`{labels.TASK_QUEUE}`. A base queue for clusters includes the "
            "queues of all classes of work. Empty: all queues."
        ),
    )


class SecretSettings(SettingsSection):
    """The secret store: a directory of files, or Secrets of the control cluster."""

    store: Literal["directory", "controlCluster"] = Field(
        default="directory",
        description=(
            "The secret store: `directory`, a directory of files, or "
            "`controlCluster`, the Secrets of the control cluster."
        ),
    )
    directory: Path = Field(
        default=Path("~/.local/share/modelplane/secrets"),
        description="Directory of the secret store `directory`.",
    )
    propagation: Literal["off", "labelled", "all"] = Field(
        default="labelled",
        description=(
            "Copies of the Secrets that pods name: `off`, only those with the "
            f"label `{labels.PROPAGATE}` (`labelled`), or `all`. A copy on a "
            "cluster follows its source within a minute."
        ),
    )
    restart_on_rotation: bool = Field(
        default=False,
        description="Roll pods when one of their Secrets changes.",
    )


class KubeconfigSettings(SettingsSection):
    """Fields that a user's kubeconfig may have in addition to the safe minimum."""

    allow_loopback: bool = Field(
        default=False,
        description=(
            "Allow servers on loopback addresses in kubeconfigs. The local fleet "
            "sets it."
        ),
    )
    allow_exec: bool = Field(
        default=False,
        description=(
            "Allow `exec` and auth-provider entries in kubeconfigs, which run "
            "programs on the worker."
        ),
    )


class OutboundSettings(SettingsSection):
    """Destinations of the worker's requests for tenants, besides public addresses."""

    private_addresses: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description=(
            'Private networks, such as `["10.20.0.0/16"]`, in which tenants\' '
            "registries and token servers may be. Metadata services are never "
            "allowed."
        ),
    )


class ControlClusterSettings(SettingsSection):
    """The cluster with the HTTPRoutes and the InferenceGateway.

    It is a reference into the secret store; without a name there is no such cluster.
    """

    namespace: str = Field(
        default="modelplane-system",
        description="Namespace of the control cluster's kubeconfig in the secret store.",
    )
    name: str = Field(
        default="",
        description=(
            "Name of the Secret with the kubeconfig. Empty: there is no control "
            "cluster."
        ),
    )
    key: str = Field(
        default="kubeconfig",
        description="Key of the kubeconfig in the Secret.",
    )
    endpoint_deny_cidrs: (
        Annotated[tuple[IPvAnyNetwork, ...], Field(max_length=DENIED_NETWORKS_MAX)]
        | None
    ) = Field(
        default=None,
        description=(
            'Networks in which endpoints may not be, such as `["10.96.0.0/12"]`. '
            "Unset: the networks of the control cluster's Services and pods, as "
            "far as it reports them. An empty list: none."
        ),
    )


class ImageSettings(SettingsSection):
    """The source of the images that this project runs. Engine images never change."""

    mirror: Mirror = Field(
        default="",
        description=(
            "Path in a registry, such as `registry.example.com/mirror`, under "
            "which every image of this project is available by its full name: "
            "`python:3.11-slim` is pulled from "
            "`<mirror>/docker.io/library/python:3.11-slim`. Users' engine images "
            "keep their names."
        ),
    )
    pull_secrets: Annotated[
        tuple[ObjectName, ...], Field(max_length=_PULL_SECRETS_MAX)
    ] = Field(
        default=(),
        description=(
            "Names of Docker configs in namespace `modelplane-system` of the "
            "secret store, for pods with images of this project."
        ),
    )


class WorkloadSettings(SettingsSection):
    """Settings of pods on inference clusters, in addition to the users' manifests."""

    namespace: WorkloadNamespace = Field(
        default="mirror",
        description=(
            "Namespace of pods on clusters. `mirror`: the namespace of the "
            "deployment. Any other value is the name of one namespace for all "
            "deployments."
        ),
    )
    engine_requests: Requests = Field(
        default_factory=lambda: {"cpu": "100m", "memory": "256Mi"},
        description=(
            "Requests of an engine container in addition to its devices. A lower "
            "limit of its class lowers them."
        ),
    )
    shm_size_limit: OptionalQuantity = Field(
        default="",
        description="Size limit of shared memory. Empty: no limit.",
    )
    termination_grace_seconds: Seconds = Field(
        default=30,
        description="Grace period in seconds of engines without `drain`.",
    )
    startup_seconds: Seconds = Field(
        default=0,
        description=(
            "Time in seconds that an engine may take to start, enforced by a "
            "startup probe. 0: no startup probe."
        ),
    )
    toleration_keys: tuple[QualifiedName, ...] = Field(
        default=(),
        description=(
            "Node taints that engines tolerate in addition to the taints of their "
            "devices. Empty: the taint of NVIDIA devices."
        ),
    )
    adopt_renderer: AdoptRenderer = Field(
        default="OnRestart",
        description=(
            "When to replace pods that a newer worker, or other settings, would "
            "render differently. `OnRestart`: when `modelplane rollout restart` "
            "restarts the deployment. `Rolling`: at once, as a rollout."
        ),
    )
    refused_annotations: tuple[RefusedAnnotation, ...] = Field(
        default=labels.REFUSED_ANNOTATIONS,
        description=(
            "Annotations that users may not set on pods, because webhooks and "
            "runtimes react to them with extra containers, volumes, devices or "
            "permissions. `example.com/` and `com.example.` match all keys with "
            "that prefix, `*.example.com/` also matches keys of subdomains."
        ),
    )


class PickerSettings(SettingsSection):
    """The endpoint picker of each replica: the process that selects a pod per request."""

    image: PickerImage = Field(
        default=images.ENDPOINT_PICKER,
        description=(
            "Image of the endpoint picker of each replica. Its tag begins with a "
            "supported release."
        ),
    )
    replicas: int = Field(
        default=1,
        ge=1,
        le=_PICKERS_MAX,
        description=(
            "Pods of one endpoint picker, which all serve. Each knows only the cached "
            "prefixes of its own requests, unless a deployment has precise prefix "
            "caching. Several pods continue to serve when a node fails."
        ),
    )
    failure_mode: Literal["FailOpen", "FailClose"] = Field(
        default="FailOpen",
        description=(
            "The field `failureMode` of InferencePools. Envoy AI Gateway 0.7 ignores "
            "it: while no picker responds, requests fail with 500 in both modes."
        ),
    )
    metrics_auth: bool = Field(
        default=False,
        description="Require a token for the picker's metrics. PodMonitors receive it.",
    )
    extra_flags: PickerFlags = Field(
        default_factory=dict,
        description=(
            "Further flags of the picker, by name without the leading `-`. A "
            "deployment adds others with the annotation "
            f"`{labels.PICKER_FLAGS}`, such as names of metrics."
        ),
    )
    kv_cache_utilization_weight: int = Field(
        default=2,
        ge=0,
        le=_WEIGHT_MAX,
        description=(
            "Weight of the score for free KV cache. The scores for a cached prefix "
            "and for a short queue have the weight 3. 0 omits the score."
        ),
    )
    requests: Requests = Field(
        default_factory=lambda: {"cpu": "500m", "memory": "1Gi"},
        description=(
            "Resource requests of a picker. `stack.tolerations`, "
            "`stack.priorityClassName` and `stack.affinity` place its pods."
        ),
    )
    limits: Requests = Field(
        default_factory=lambda: {"memory": "4Gi"},
        description="Resource limits of a picker.",
    )


class SidecarSettings(SettingsSection):
    """The container in decode pods that fetches the KV cache from prefill engines."""

    image: PickerImage = Field(
        default=images.DISAGGREGATION_SIDECAR,
        description=(
            "Image of the sidecar of decode engines, of the same release as "
            "`epp.image`."
        ),
    )


class TracingSettings(SettingsSection):
    """Traces of endpoint pickers and sidecars."""

    enabled: bool = Field(
        default=False,
        description="Endpoint pickers and sidecars send traces.",
    )
    endpoint: Url = Field(
        default="http://otel-collector.monitoring.svc:4317",
        description="OTLP endpoint, as pods reach it.",
    )
    sampler: Literal[
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ] = Field(
        default="parentbased_traceidratio",
        description="The OpenTelemetry sampler.",
    )
    sampler_argument: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Fraction of requests that is traced.",
    )


class MonitoringSettings(SettingsSection):
    """PodMonitors of engines and pickers, on clusters that serve that kind."""

    enabled: bool = Field(
        default=True,
        description=(
            "Create PodMonitors of engines and pickers on clusters that serve "
            "that kind."
        ),
    )


class SchedulerSettings(SettingsSection):
    """Pods on clusters with KAI or Kueue.

    The annotation `modelplane.ai/scheduler-type` of a cluster names its scheduler.
    """

    kai_mode: Literal["auto", "explicit"] = Field(
        default="auto",
        description=(
            "The creator of the PodGroup of a gang on clusters with KAI: KAI "
            "(`auto`), or the control plane (`explicit`)."
        ),
    )
    priority_class: OptionalObjectName = Field(
        default="",
        description="Priority class of engines on clusters with KAI or Kueue.",
    )


class GatewaySettings(SettingsSection):
    """Access to the gateways of clusters."""

    scheme: Literal["http", "https"] = Field(
        default="http",
        description=(
            "Scheme of the addresses of endpoints: `https` if the gateways of "
            "clusters have certificates. It is read when a cluster connects."
        ),
    )


class CacheSettings(SettingsSection):
    """Staging of caches."""

    hydration_image: Image = Field(
        default=images.HYDRATION,
        description=(
            "Image of the Job that fills a cache from the Hugging Face hub. The "
            "Job installs the pinned `huggingface_hub` if the image does not "
            "contain it. The container in which followers of a gang wait for their "
            "leader has the same image, which must contain `python3`."
        ),
    )
    hub_endpoint: OptionalUrl = Field(
        default="",
        description=(
            "Address of a mirror of the Hugging Face hub, for the worker and for "
            "clusters. Empty: the public hub."
        ),
    )
    pip_index_url: OptionalUrl = Field(
        default="",
        description=(
            "Package index from which the Job installs `huggingface_hub`, as "
            "clusters reach it. The hashes are pinned. Empty: the public index."
        ),
    )
    mount_read_only: bool = Field(
        default=False,
        description="Mount caches read-only. Many engines write files beside the weights.",
    )
    max_attempts: int = Field(
        default=0,
        ge=0,
        description=(
            "Number of downloads per cluster. 0: no limit, with pauses of up to "
            "30 minutes."
        ),
    )
    active_deadline_seconds: Seconds = Field(
        default=21600,
        description="Deadline of one download in seconds. 0: no deadline.",
    )
    evict_grace: Seconds = Field(
        default=600,
        description=(
            "Time in seconds for which a cluster that is no longer selected keeps "
            "its volume."
        ),
    )


class OciSettings(SettingsSection):
    """Unpacking of model packs."""

    kit_image: Image = Field(
        default=images.KIT,
        description="Image of the Job that unpacks model packs.",
    )
    allow_plain_http: bool = Field(
        default=False,
        description="Allow `plainHTTP` in caches, which reads a registry without TLS.",
    )


class S3Settings(SettingsSection):
    """Access to buckets."""

    allow_plain_http: bool = Field(
        default=False,
        description="Allow bucket endpoints in caches that begin with `http://`.",
    )


class StackSettings(SettingsSection):
    """Installation of serving stacks with Helm."""

    helm: str = Field(
        default="",
        description=(
            "Path of the helm program, 3.22 or 4. Empty: the program on PATH. It "
            "is required for clusters whose serving stack the control plane "
            "installs."
        ),
    )
    chart_mirror: ChartMirror = Field(
        default="",
        description=(
            "Repository that has every chart, instead of the pinned repositories: "
            "`oci://registry.example.com/charts`, or a URL with an index. It is "
            "read without a login."
        ),
    )
    helm_concurrency: int = Field(
        default=8,
        ge=1,
        description="Concurrent Helm processes of one worker; at most 3 for one cluster.",
    )
    versions: ChartVersions = Field(
        default_factory=dict,
        description=(
            "Versions of charts that differ from those of this release, by "
            "component (`envoyGateway: v1.8.2`; also `certManager`, `prometheus`, "
            "`leaderWorkerSet`, `nodeFeatureDiscovery`, `nvidiaDraDriver`, "
            "`aiGateway`). `inferenceExtension` is part of the release, and "
            "`gatewayApi` is the version that the chart of Envoy Gateway is expected to "
            "bring. A change upgrades every stack."
        ),
    )
    values: ChartValues = Field(
        default_factory=dict,
        description=(
            "Values of charts that replace those of this release, by component "
            "(`prometheus: {prometheusOperator: {resources: ...}}`; the names are "
            "those of `versions`, and `aiGatewayCrds`). Objects are merged and lists "
            "replaced. They are visible in Temporal: use no secrets. A change upgrades "
            "every stack."
        ),
    )
    tolerations: Tolerations = Field(
        default_factory=list,
        max_length=_TOLERATIONS_MAX,
        description=(
            "Taints that the pods of stacks, of gateways and of endpoint pickers "
            "tolerate, as in a pod: `[{key: dedicated, operator: Exists}]`. A cluster "
            "whose nodes all have taints needs them."
        ),
    )
    priority_class_name: OptionalObjectName = Field(
        default="",
        description=(
            "Priority class of these pods; it must exist on every cluster. The charts "
            "of LeaderWorkerSet and of the AI gateway support none, and the pods of the "
            "DRA driver keep theirs."
        ),
    )
    affinity: Affinity = Field(
        default_factory=dict,
        description=(
            "Affinity of these pods, as in a pod. Pods that run on every node or on GPU "
            "nodes do not get it."
        ),
    )
    upgrade_parallelism: int = Field(
        default=1,
        ge=1,
        le=UPGRADES_AT_ONCE_MAX,
        description=(
            "Number of clusters whose stacks are upgraded at the same time. If "
            "workers have different values, the smallest applies."
        ),
    )
    allow_untested_pair: bool = Field(
        default=False,
        description=(
            "Allow a version of Envoy Gateway that was not tested with the "
            "version of the AI gateway."
        ),
    )
    gateway_class: ObjectName = Field(
        default="envoy",
        description="The GatewayClass of a stack. It must not exist before.",
    )
    compute_domains: bool = Field(
        default=False,
        description=(
            "Enable ComputeDomains in the NVIDIA DRA driver, for "
            "`topology.computeDomain`. All GPU nodes of all clusters with a managed "
            "stack need multi-node NVLink, or a GPU driver with which the plugin of "
            "ComputeDomains starts without it: it may keep the driver of other nodes "
            "from becoming ready."
        ),
    )
    longest_generation: int = Field(
        default=3600,
        ge=60,
        le=86400,
        description=(
            "Time in seconds that a stream continues after routes have changed, "
            "or while its proxy or its endpoint picker terminates. A change restarts "
            "the proxies of each cluster once, and cuts streams that are longer than "
            "the previous value."
        ),
    )


class TeardownSettings(SettingsSection):
    """Time limits of teardowns."""

    drain_seconds: Seconds = Field(
        default=15,
        description=(
            "Time in seconds between the withdrawal of an endpoint and the "
            "deletion or replacement of its pods."
        ),
    )
    force_after: Seconds | None = Field(
        default=None,
        description=(
            "Time in seconds after which stuck pods are force-deleted. Unset: never."
        ),
    )


class ClusterSettings(SettingsSection):
    """Unreachable clusters, and the load of one worker on a cluster."""

    unreachable_after: Seconds = Field(
        default=300,
        description=(
            "Time in seconds without contact after which the endpoints on a "
            "cluster are withdrawn, if its gateway does not answer either."
        ),
    )
    max_concurrent_requests: int = Field(
        default=24,
        ge=1,
        description=(
            "Concurrent requests of one worker to one API server, without watches."
        ),
    )
    max_concurrent_applies: int = Field(
        default=32,
        ge=1,
        description=(
            "Replicas and caches that one worker applies concurrently on one "
            "cluster. Others wait for their turn."
        ),
    )


class WorkerSettings(SettingsSection):
    """Limits and addresses of one worker process."""

    identity: str = Field(
        default="",
        description="Name in Temporal's list of pollers. Empty: host name and process ID.",
    )
    deployment_name: DeploymentName = Field(
        default="",
        description=(
            "Worker Deployment in Temporal, which versions workers: the workers "
            "of a build run no workflow until the build is promoted. Empty: no "
            "versioning."
        ),
    )
    build_id: BuildId = Field(
        default="",
        description=(
            "Build that Temporal records with each workflow task. The build of an "
            "image sets it. Empty: a digest of the sources."
        ),
    )
    listen: Address = Field(
        default="127.0.0.1:9464",
        description="Address of `/healthz`, `/readyz` and `/metrics`.",
    )
    max_concurrent_workflow_tasks: int = Field(
        default=40,
        ge=2,
        description=(
            "Concurrent workflow tasks. They share one interpreter: with many "
            "more, none would finish within the server's limit of 10 s."
        ),
    )
    max_concurrent_activities: int = Field(
        default=200,
        ge=1,
        description=(
            "Concurrent activities of one task queue, such as applies, except "
            "watches and waits."
        ),
    )
    max_concurrent_watches: int = Field(
        default=1000,
        ge=1,
        description=(
            "Number of clusters that this worker watches. Further clusters wait "
            "for another worker."
        ),
    )
    max_concurrent_waits: int = Field(
        default=1000,
        ge=1,
        description=(
            "Concurrent teardown steps, and as many waits of caches. Each lasts "
            "until its objects are gone."
        ),
    )
    max_cached_workflows: int = Field(
        default=2000,
        ge=0,
        description="Number of workflows that the worker keeps in its cache.",
    )
    graceful_shutdown_seconds: Seconds = Field(
        default=20,
        description=(
            "Time in seconds that running activities have to hand over their work."
        ),
    )


class LogSettings(SettingsSection):
    """Logs of all programs."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Lowest level that is logged.",
    )
    format: Literal["json", "console"] = Field(
        default="json",
        description="Format of log lines.",
    )


# Keys that users mistake for settings, and the alternative for each.
NO_SETTINGS = {
    "cache.clientVersion": (
        "the versions of the hub client are pinned by hash; to use another "
        "version, set cache.hydrationImage to an image that contains it"
    ),
    "rollout.maxUnavailableReplicas": "set spec.rollout.maxUnavailable of each ModelDeployment",
    "rollout.surge": "set spec.rollout.maxSurge of each ModelDeployment",
    "routing.surface": f"set the annotation {labels.ROUTING} of each InferenceCluster",
    "scheduler.type": f"set the annotation {labels.SCHEDULER_TYPE} of each InferenceCluster",
}


class Settings(BaseSettings):
    """All settings, which a program reads once at its start."""

    model_config = SettingsConfigDict(
        env_prefix=environment.PREFIX,
        env_nested_delimiter=environment.DELIMITER,
        extra="forbid",
        frozen=True,
        alias_generator=camel,
        populate_by_name=True,
    )

    temporal: TemporalSettings = TemporalSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    queues: QueueSettings = QueueSettings()
    secrets: SecretSettings = SecretSettings()
    kubeconfig: KubeconfigSettings = KubeconfigSettings()
    outbound: OutboundSettings = OutboundSettings()
    control_cluster: ControlClusterSettings = ControlClusterSettings()
    images: ImageSettings = ImageSettings()
    workloads: WorkloadSettings = WorkloadSettings()
    epp: PickerSettings = PickerSettings()
    sidecar: SidecarSettings = SidecarSettings()
    tracing: TracingSettings = TracingSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    gateway: GatewaySettings = GatewaySettings()
    cache: CacheSettings = CacheSettings()
    oci: OciSettings = OciSettings()
    s3: S3Settings = S3Settings()
    stack: StackSettings = StackSettings()
    provision: ProvisionSettings = ProvisionSettings()
    gke: GkeSettings = GkeSettings()
    eks: EksSettings = EksSettings()
    teardown: TeardownSettings = TeardownSettings()
    cluster: ClusterSettings = ClusterSettings()
    worker: WorkerSettings = WorkerSettings()
    front: FrontSettings = FrontSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _check_mirror(self) -> "Settings":
        for key, image in _images(self):
            try:
                read_image(images.mirrored(image, self.images.mirror))
            except ValueError as error:
                raise ValueError(
                    f"{key}: its name in images.mirror is not valid: {error}"
                ) from None
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: environment, file, defaults."""
        del env_settings, dotenv_settings, file_secret_settings
        file = os.environ.get(environment.CONFIG_VARIABLE)
        sources: list[PydanticBaseSettingsSource] = [
            init_settings,
            environment.EnvironmentSource(settings_cls),
        ]
        if file:
            tree = read_settings_file(Path(file).expanduser())
            sources.append(InitSettingsSource(settings_cls, tree))
        return tuple(sources)


class UnreadableSettings(ValueError):
    """A settings file that does not hold a mapping of settings.

    The message gives the reason without any content of the file.
    """


def read_settings_file(file: Path) -> dict[str, Any]:
    """Read the tree of a settings file; it is empty if the file does not exist.

    Raises:
        UnreadableSettings: the file is not readable or does not hold a mapping.

    """
    if not file.is_file():
        return {}
    try:
        tree = read_one(file.read_text(encoding="utf-8"), _VALUES_MAX)
    except OSError as error:
        raise UnreadableSettings(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableSettings(f"{file} is not UTF-8 text") from None
    except Unreadable as error:
        raise UnreadableSettings(f"{file} line {error.line}: {error.reason}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise UnreadableSettings(f"{file} must hold a mapping of settings")
    return tree


def images_by_tag(settings: Settings) -> list[str]:
    """List the settings whose image has no digest.

    A registry may serve a different image under the same tag tomorrow.
    """
    return [
        f"{key}: {image}"
        for key, image in _images(settings)
        if not read_image(image).digest
    ]


def _images(settings: Settings) -> list[tuple[str, str]]:
    """Return each setting that holds the image of a container of this project."""
    found = []
    for name, group in Settings.model_fields.items():
        section = getattr(settings, name)
        for inner, field in type(section).model_fields.items():
            if IMAGE_CHECK in field.metadata:
                key = f"{group.alias}.{field.alias}"
                found.append((key, str(getattr(section, inner))))
    return found


def bad_settings(error: ValidationError) -> list[str]:
    """List `<setting>: <problem>` for each invalid setting.

    The texts omit the values, which may be secret.
    """
    texts: list[str] = []
    for fault in error.errors():
        texts += _faults([str(part) for part in fault["loc"]], fault)
    return texts


def _faults(path: list[str], fault: ErrorDetails) -> list[str]:
    if path and path[0].upper().startswith(environment.PREFIX):
        return [environment.unknown_variable(Settings, path[0], NO_SETTINGS)]
    key = ".".join(path)
    if fault["type"] == "extra_forbidden":
        inner = (
            [f"{key}.{name}" for name in fault["input"]]
            if isinstance(fault["input"], dict)
            else []
        )
        unknown = inner if NO_SETTINGS.keys() & inner else [key]
        return [f"{name}: {_unknown(name)}" for name in unknown]
    return [f"{key}: {_problem(fault)}" if key else _problem(fault)]


def _unknown(key: str) -> str:
    if key in NO_SETTINGS:
        return f"there is no such setting: {NO_SETTINGS[key]}"
    groups = [field.alias or name for name, field in Settings.model_fields.items()]
    meant = nearest(key, [*groups, *setting_keys()])
    return "there is no such setting" + (f"; did you mean {meant}?" if meant else "")


def setting_keys() -> list[str]:
    """Return the dotted key of every setting, in the order of the code."""
    keys = []
    for group in Settings.model_fields.values():
        fields = getattr(group.annotation, "model_fields", {}).values()
        keys += [f"{group.alias}.{field.alias}" for field in fields]
    return keys


def _problem(fault: ErrorDetails) -> str:
    if fault["type"] == "model_type":
        return (
            "this is a group of settings; name one of them (in the environment "
            "after two underscores), or write the group as JSON"
        )
    return fault["msg"].removeprefix("Value error, ")
