"""Every setting of the project, with its default.

A setting is a dotted key: `workloads.namespace`. It is set in one YAML file, named by `MODELPLANE_CONFIG`, or in an environment variable,
`MODELPLANE_WORKLOADS__NAMESPACE`, which takes precedence (`environment.py` says which variables count). An unknown key or variable is an
error that names it.
"""

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, IPvAnyNetwork, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from api_types import environment, labels
from api_types.model_sources import read_image
from api_types.pins import images
from api_types.text.reader import Unreadable, read_one

# A hundred times as many as there are settings.
_VALUES_MAX = 10_000

Network = IPv4Network | IPv6Network


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _check_image(text: str) -> str:
    reference = read_image(text)
    if not (reference.tag or reference.digest):
        raise ValueError("must name a digest (`image@sha256:...`) or at least a tag")
    return text


Image = Annotated[str, AfterValidator(_check_image)]


class Section(BaseModel):
    """A group of settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=_camel, validate_by_name=True)


class TemporalSettings(Section):
    """The connection to Temporal. A TLS client certificate and an API key exclude each other."""

    address: str = "127.0.0.1:7233"
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


class WorkloadSettings(Section):
    """What is set on pods on inference clusters beyond what users write."""

    namespace: str = Field(default="mirror", description="`mirror`: the namespace of the deployment; else the name of a shared one.")
    engine_requests: dict[str, str] = Field(default_factory=lambda: {"cpu": "100m", "memory": "256Mi"})
    shm_size_limit: str = ""
    termination_grace_seconds: int = 30
    toleration_keys: tuple[str, ...] = ()
    refused_annotations: tuple[str, ...] = Field(
        default=labels.REFUSED_ANNOTATIONS,
        description="Annotations that users may not set on pods; `example.com/` stands for all that begin so.",
    )


class CacheSettings(Section):
    """How caches are staged. Times are in seconds; 0 attempts or deadline means no limit."""

    hydration_image: Image = images.HYDRATION
    hub_endpoint: str = Field(default="", description="Address of a mirror of the Hugging Face hub, for the worker and for clusters.")
    mount_read_only: bool = False
    max_attempts: int = Field(default=0, ge=0)
    active_deadline_seconds: int = Field(default=21600, ge=0)
    evict_grace: int = Field(default=600, ge=0)


class OciSettings(Section):
    """How model packs are unpacked."""

    kit_image: Image = images.KIT
    allow_plain_http: bool = Field(default=False, description="Whether a cache may set `plainHTTP`: no TLS to its registry.")


class TeardownSettings(Section):
    """How long a teardown drains, and after how many seconds stuck pods are force-deleted (unset: never)."""

    drain_seconds: int = 15
    force_after: int | None = None


class ClusterSettings(Section):
    """After how many seconds the endpoints of replicas on a cluster that does not answer are withdrawn, and how much one worker asks it."""

    unreachable_after: int = 300
    max_concurrent_requests: int = Field(default=24, ge=1, description="Requests of one worker to one API server at once, without watches.")


class WorkerSettings(Section):
    """Limits and addresses of one worker process."""

    identity: str = ""
    listen: str = Field(default="127.0.0.1:9464", description="Address of /healthz and /metrics.")
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
    max_cached_workflows: int = 2000
    graceful_shutdown_seconds: int = 20


class LogSettings(Section):
    """Structured logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"


class Settings(BaseSettings):
    """All settings, read once at the start of a program."""

    model_config = SettingsConfigDict(
        env_prefix=environment.PREFIX,
        env_nested_delimiter=environment.DELIMITER,
        extra="forbid",
        frozen=True,
        alias_generator=_camel,
        populate_by_name=True,
    )

    temporal: TemporalSettings = TemporalSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    queues: QueueSettings = QueueSettings()
    secrets: SecretSettings = SecretSettings()
    kubeconfig: KubeconfigSettings = KubeconfigSettings()
    outbound: OutboundSettings = OutboundSettings()
    control_cluster: ControlClusterSettings = ControlClusterSettings()
    workloads: WorkloadSettings = WorkloadSettings()
    cache: CacheSettings = CacheSettings()
    oci: OciSettings = OciSettings()
    teardown: TeardownSettings = TeardownSettings()
    cluster: ClusterSettings = ClusterSettings()
    worker: WorkerSettings = WorkerSettings()
    log: LogSettings = LogSettings()

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
    sections = [(section.alias or name, getattr(settings, name)) for name, section in Settings.model_fields.items()]
    found = [
        (f"{prefix}.{field.alias}", str(getattr(section, name)))
        for prefix, section in sections
        for name, field in type(section).model_fields.items()
        if any(isinstance(each, AfterValidator) and each.func is _check_image for each in field.metadata)
    ]
    return [f"{key}: {image}" for key, image in found if not read_image(image).digest]


def bad_settings(error: ValidationError) -> list[str]:
    """List `<setting>: <problem>` for each invalid setting; without values, which may be secret."""
    return [_fault([str(part) for part in fault["loc"]], fault["type"], fault["msg"]) for fault in error.errors()]


def _fault(path: list[str], kind: str, message: str) -> str:
    if path[0].startswith(environment.PREFIX):
        return environment.unknown_variable(Settings, path[0])
    return f"{'.'.join(path)}: {_problem(kind, message)}"


def _problem(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such setting"
    if kind == "model_type":
        return "this is a group of settings; name one of them (in the environment after two underscores), or give the group as JSON"
    return message
