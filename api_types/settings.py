"""Every setting of the project, with its default.

A setting is a dotted key: `workloads.namespace`. It is set in one YAML file, named by `MODELPLANE_CONFIG`, or in an environment variable,
`MODELPLANE_WORKLOADS__NAMESPACE`, which takes precedence (`environment.py` says which variables count). An unknown key or variable is an
error that names it.
"""

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, IPvAnyNetwork, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from api_types import environment, labels
from api_types.hints import nearest
from api_types.limits import DENIED_NETWORKS_MAX, UPGRADES_AT_ONCE_MAX
from api_types.model_sources import read_image
from api_types.pins import images
from api_types.sections.base import Section, camel
from api_types.sections.clouds import EksSettings, GkeSettings, ProvisionSettings
from api_types.sections.front import FrontSettings
from api_types.setting_types import (
    IMAGE_CHECK,
    Address,
    AdoptRenderer,
    BuildId,
    ChartMirror,
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
    Url,
    WorkloadNamespace,
)
from api_types.text.reader import Unreadable, read_one

# A hundred times as many as there are settings.
_VALUES_MAX = 10_000
# Far more than one installation has registries, and pods have room for.
_PULL_SECRETS_MAX = 8
_PICKERS_MAX = 16
_WEIGHT_MAX = 1000

Network = IPv4Network | IPv6Network


class TemporalSettings(Section):
    """The connection to Temporal. A TLS client certificate and an API key exclude each other."""

    address: Address = "127.0.0.1:7233"
    namespace: str = "default"
    tls: bool = False
    tls_server_ca: Path | None = None
    tls_client_cert: Path | None = None
    tls_client_key: Path | None = None
    api_key_file: Path | None = Field(default=None, description="A file with the API key, so that it is not shown in process listings.")
    ui: str = Field(default="", description="The address of the Temporal UI, for links.")


class EncryptionSettings(Section):
    """Keys for payloads in Temporal: id to a file with 32 bytes in base64. All decrypt, the active one encrypts; none: no encryption.

    `required`: messages that are not encrypted are refused. Without it they are read, also where keys are set.
    """

    keys: dict[str, Path] = Field(default_factory=dict)
    active_key: str = ""
    required: bool = False


class QueueSettings(Section):
    """Which task queues this worker serves; by default all. A base queue for clusters stands for those of all its classes of work."""

    serve: tuple[str, ...] = ()


class SecretSettings(Section):
    """Where secrets are stored: in a directory of files, or as Secrets of the control cluster."""

    store: Literal["directory", "controlCluster"] = "directory"
    directory: Path = Path("~/.local/share/modelplane/secrets")
    propagation: Literal["off", "labelled", "all"] = "labelled"
    restart_on_rotation: bool = False


class KubeconfigSettings(Section):
    """What a kubeconfig of a user may contain beyond the safe minimum."""

    allow_loopback: bool = False
    allow_exec: bool = False


class OutboundSettings(Section):
    """What the worker connects to for tenants, who name registries: public addresses, and what is listed here."""

    private_addresses: tuple[IPvAnyNetwork, ...] = Field(
        default=(), description="Networks, such as `10.20.0.0/16`, where registries and token servers of tenants may be."
    )


class ControlClusterSettings(Section):
    """The cluster with the HTTPRoutes and the InferenceGateway, as a reference into the secret store; empty: none."""

    namespace: str = "modelplane-system"
    name: str = ""
    key: str = "kubeconfig"
    endpoint_deny_cidrs: Annotated[tuple[IPvAnyNetwork, ...], Field(max_length=DENIED_NETWORKS_MAX)] | None = Field(
        default=None,
        description="Networks where endpoints may not be, such as `10.96.0.0/12`; unset: those of the control cluster's Services and pods, "
        "as far as it tells them; an empty list: none.",
    )


class ImageSettings(Section):
    """Where the images that this project runs come from. Those of users' engines are never changed."""

    mirror: Mirror = Field(
        default="",
        description="Folder of a registry that has every image under its whole name: `python:3.11-slim` is read from "
        "`<mirror>/docker.io/library/python:3.11-slim`.",
    )
    pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=_PULL_SECRETS_MAX)] = Field(
        default=(), description="Docker configs in namespace `modelplane-system` of the secret store, for pods with images of this project."
    )


class WorkloadSettings(Section):
    """What is set on pods on inference clusters beyond what users write."""

    namespace: WorkloadNamespace = Field(default="mirror", description="`mirror`: the namespace of the deployment; else a shared one.")
    engine_requests: Requests = Field(default_factory=lambda: {"cpu": "100m", "memory": "256Mi"})
    shm_size_limit: OptionalQuantity = ""
    termination_grace_seconds: Seconds = 30
    startup_seconds: Seconds = Field(default=0, description="Time that an engine may take to start, as a startup probe; 0: no such probe.")
    toleration_keys: tuple[QualifiedName, ...] = ()
    adopt_renderer: AdoptRenderer = Field(
        default="OnRestart",
        description="When pods are replaced that a newer version of this program, or other settings, would make otherwise: when their "
        "owner restarts the deployment, or at once, as a rollout.",
    )
    refused_annotations: tuple[RefusedAnnotation, ...] = Field(
        default=labels.REFUSED_ANNOTATIONS,
        description="Annotations that users may not set on pods; `example.com/` and `com.example.` stand for all that begin so, "
        "`*.example.com/` also for those of subdomains.",
    )


class PickerSettings(Section):
    """The endpoint picker of each replica: the process that selects the pod for a request."""

    image: PickerImage = images.ENDPOINT_PICKER
    replicas: int = Field(default=1, ge=1, le=_PICKERS_MAX, description="Pods of one picker; of several, one leads.")
    failure_mode: Literal["FailOpen", "FailClose"] = Field(
        default="FailOpen", description="What the gateway does without an answer of the picker: take any pod, or refuse the request."
    )
    metrics_auth: bool = Field(default=False, description="Whether its metrics need a token.")
    extra_flags: PickerFlags = Field(default_factory=dict, description="Further flags, by their name without leading '-'.")
    kv_cache_utilization_weight: int = Field(
        default=0, ge=0, le=_WEIGHT_MAX, description="Weight of the scorer by free KV cache; 0 leaves it out."
    )


class SidecarSettings(Section):
    """The container beside decode engines that fetches what prefill engines computed."""

    image: PickerImage = images.DISAGGREGATION_SIDECAR


class TracingSettings(Section):
    """Traces of endpoint pickers and sidecars."""

    enabled: bool = False
    endpoint: Url = Field(default="http://otel-collector.monitoring.svc:4317", description="Address for OTLP, as pods reach it.")
    sampler: Literal[
        "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"
    ] = "parentbased_traceidratio"
    sampler_argument: float = Field(default=0.01, ge=0, le=1, description="The share of requests that is traced.")


class MonitoringSettings(Section):
    """PodMonitors of engines and pickers, on clusters that serve that kind."""

    enabled: bool = True


class SchedulerSettings(Section):
    """Pods on clusters with KAI or Kueue. Which scheduler a cluster has, its annotation `modelplane.ai/scheduler-type` says."""

    kai_mode: Literal["auto", "explicit"] = Field(default="auto", description="Who makes the PodGroup of a gang: KAI, or this project.")
    priority_class: OptionalObjectName = ""


class GatewaySettings(Section):
    """How gateways of clusters are reached."""

    scheme: Literal["http", "https"] = Field(default="http", description="The scheme of the addresses of endpoints.")


class CacheSettings(Section):
    """How caches are staged. Times are in seconds; 0 attempts or deadline means no limit."""

    hydration_image: Image = images.HYDRATION
    hub_endpoint: OptionalUrl = Field(
        default="", description="Address of a mirror of the Hugging Face hub, for the worker and for clusters."
    )
    pip_index_url: OptionalUrl = Field(
        default="", description="Index from which the Job installs the hub's client where its image has none; the hashes are pinned."
    )
    mount_read_only: bool = False
    max_attempts: int = Field(default=0, ge=0)
    active_deadline_seconds: Seconds = 21600
    evict_grace: Seconds = 600


class OciSettings(Section):
    """How model packs are unpacked."""

    kit_image: Image = images.KIT
    allow_plain_http: bool = Field(default=False, description="Whether a cache may set `plainHTTP`: no TLS to its registry.")


class S3Settings(Section):
    """How buckets are read."""

    allow_plain_http: bool = Field(default=False, description="Whether the endpoint of a cache may begin with `http://`.")


class StackSettings(Section):
    """How the worker installs serving stacks with Helm."""

    helm: str = Field(default="", description="Path of the helm program; empty: that on PATH. Needed for stacks that are managed.")
    chart_mirror: ChartMirror = Field(
        default="",
        description="Repository that has every chart, in place of those that the pins name: `oci://registry.example.com/charts`, or an "
        "address with an index. It is read without a login.",
    )
    helm_concurrency: int = Field(default=8, ge=1, description="Helm processes of one worker at once; of one cluster at most 3.")
    versions: ChartVersions = Field(
        default_factory=dict,
        description="Versions of charts other than those of this release: `envoyGateway: v1.8.2`. A change upgrades every stack.",
    )
    upgrade_parallelism: int = Field(
        default=1,
        ge=1,
        le=UPGRADES_AT_ONCE_MAX,
        description="Clusters whose stacks are upgraded at the same time; of workers with different settings the smallest holds.",
    )
    allow_untested_pair: bool = Field(
        default=False, description="Whether Envoy Gateway may have a version that was not tested with that of the AI gateway."
    )
    gateway_class: ObjectName = Field(default="envoy", description="The GatewayClass that a stack has; it must not be there before.")
    longest_generation: int = Field(
        default=3600,
        ge=60,
        le=86400,
        description="Seconds that a stream goes on after routes have changed, or while its proxy ends. "
        "A change restarts the proxies of each cluster once, and cuts streams that run longer than before.",
    )


class TeardownSettings(Section):
    """How long a teardown drains, and after how many seconds stuck pods are force-deleted (unset: never)."""

    drain_seconds: Seconds = 15
    force_after: Seconds | None = None


class ClusterSettings(Section):
    """After how many seconds the endpoints of replicas on a cluster that does not answer are withdrawn, and how much one worker asks it."""

    unreachable_after: Seconds = 300
    max_concurrent_requests: int = Field(default=24, ge=1, description="Requests of one worker to one API server at once, without watches.")
    max_concurrent_applies: int = Field(
        default=32, ge=1, description="Replicas and caches that one worker applies on one cluster at once; others wait their turn."
    )


class WorkerSettings(Section):
    """Limits and addresses of one worker process."""

    identity: str = ""
    deployment_name: DeploymentName = Field(
        default="",
        description="Worker Deployment in Temporal, which versions workers: those of a build run no workflow until the build is promoted. "
        "Empty: no versioning.",
    )
    build_id: BuildId = Field(default="", description="Set by the build of an image; empty: a digest of the sources.")
    listen: Address = Field(default="127.0.0.1:9464", description="Address of /healthz and /metrics.")
    max_concurrent_workflow_tasks: int = Field(
        default=40,
        ge=2,
        description="Workflow tasks at once. They share one interpreter: of many at once, none ends within the server's 10 s.",
    )
    max_concurrent_activities: int = Field(
        default=200, ge=1, description="Activities at once that are neither a watch nor a wait, by task queue."
    )
    max_concurrent_watches: int = Field(default=1000, ge=1, description="Clusters that this worker watches.")
    max_concurrent_waits: int = Field(
        default=1000, ge=1, description="Steps of teardowns, and waits of caches, at once; each lasts until its objects are gone."
    )
    max_cached_workflows: int = Field(default=2000, ge=0)
    graceful_shutdown_seconds: Seconds = 20


class LogSettings(Section):
    """Structured logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


# What could be taken for a setting, and where it is said instead.
NO_SETTINGS = {
    "cache.clientVersion": "the hub's client has pinned hashes; for another one, set cache.hydrationImage to an image that has it",
    "rollout.maxUnavailableReplicas": "each ModelDeployment says it in spec.rollout.maxUnavailable",
    "rollout.surge": "each ModelDeployment says it in spec.rollout.maxSurge",
    "routing.surface": f"each InferenceCluster says it in its annotation {labels.ROUTING}",
    "scheduler.type": f"each InferenceCluster says it in its annotation {labels.SCHEDULER_TYPE}",
}


class Settings(BaseSettings):
    """All settings, read once at the start of a program."""

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
                raise ValueError(f"{key}: its name in images.mirror is none: {error}") from None
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
        """Environment over file over defaults."""
        del env_settings, dotenv_settings, file_secret_settings
        file = os.environ.get(environment.CONFIG_VARIABLE)
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, environment.EnvironmentSource(settings_cls))
        return (*sources, InitSettingsSource(settings_cls, read_settings_file(Path(file).expanduser()))) if file else sources


class UnreadableSettings(ValueError):
    """A settings file that holds no mapping of settings. The text says why, and nothing of what is in it."""


def read_settings_file(file: Path) -> dict[str, Any]:
    """Read the tree of a settings file, empty if there is no such file. Raises UnreadableSettings."""
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
    """List the settings whose image has no digest: a registry may give another one under that tag tomorrow."""
    return [f"{key}: {image}" for key, image in _images(settings) if not read_image(image).digest]


def _images(settings: Settings) -> list[tuple[str, str]]:
    """Give each setting that names an image that this project runs."""
    return [
        (f"{section.alias}.{field.alias}", str(getattr(getattr(settings, group), name)))
        for group, section in Settings.model_fields.items()
        for name, field in type(getattr(settings, group)).model_fields.items()
        if IMAGE_CHECK in field.metadata
    ]


def bad_settings(error: ValidationError) -> list[str]:
    """List `<setting>: <problem>` for each invalid setting; without values, which may be secret."""
    return [text for fault in error.errors() for text in _faults([str(part) for part in fault["loc"]], fault)]


def _faults(path: list[str], fault: ErrorDetails) -> list[str]:
    if path and path[0].upper().startswith(environment.PREFIX):
        return [environment.unknown_variable(Settings, path[0], NO_SETTINGS)]
    key = ".".join(path)
    if fault["type"] == "extra_forbidden":
        inner = [f"{key}.{name}" for name in fault["input"]] if isinstance(fault["input"], dict) else []
        return [f"{name}: {_unknown(name)}" for name in (inner if NO_SETTINGS.keys() & inner else [key])]
    return [f"{key}: {_problem(fault)}" if key else _problem(fault)]


def _unknown(key: str) -> str:
    if key in NO_SETTINGS:
        return f"there is no such setting: {NO_SETTINGS[key]}"
    groups = [field.alias or name for name, field in Settings.model_fields.items()]
    meant = nearest(key, [*groups, *setting_keys()])
    return "there is no such setting" + (f"; did you mean {meant}?" if meant else "")


def setting_keys() -> list[str]:
    """Give the dotted key of every setting, in the order of the code."""
    groups = [(group.alias, group.annotation) for group in Settings.model_fields.values()]
    return [f"{prefix}.{field.alias}" for prefix, kind in groups for field in getattr(kind, "model_fields", {}).values()]


def _problem(fault: ErrorDetails) -> str:
    if fault["type"] == "model_type":
        return "this is a group of settings; name one of them (in the environment after two underscores), or give the group as JSON"
    return fault["msg"].removeprefix("Value error, ")
