"""All settings of the project: their sources, their keys, and the errors for bad values.

The groups of settings, with defaults and descriptions, are in `sections`.

A setting is a dotted key, such as `workloads.namespace`. Users set it in one YAML file,
whose path is in `MODELPLANE_CONFIG`, or in an environment variable,
`MODELPLANE_WORKLOADS__NAMESPACE`, which takes precedence (see `environment.py`). The
error for an unknown key or variable contains its name.
"""

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from api_types import environment, labels
from api_types.hints import nearest
from api_types.model_sources import read_image
from api_types.pins import images
from api_types.sections.base import camel
from api_types.sections.caches import (
    CacheSettings,
    OciSettings,
    OutboundSettings,
    S3Settings,
)
from api_types.sections.clouds import EksSettings, GkeSettings, ProvisionSettings
from api_types.sections.clusters import (
    ClusterSettings,
    ControlClusterSettings,
    KubeconfigSettings,
    SecretSettings,
    TeardownSettings,
)
from api_types.sections.front import FrontSettings
from api_types.sections.programs import (
    LogSettings,
    MonitoringSettings,
    TracingSettings,
    WorkerSettings,
)
from api_types.sections.stacks import GatewaySettings, StackSettings
from api_types.sections.temporal import (
    EncryptionSettings,
    QueueSettings,
    TemporalSettings,
)
from api_types.sections.workloads import (
    ImageSettings,
    PickerSettings,
    SchedulerSettings,
    SidecarSettings,
    WorkloadSettings,
)
from api_types.setting_types import IMAGE_CHECK
from api_types.text.reader import Unreadable, read_one

# A hundred times the number of settings.
_VALUES_MAX = 10_000
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
