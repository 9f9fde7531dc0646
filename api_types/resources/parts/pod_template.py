"""The part of a pod that users may write; the platform fills in the rest.

Other fields of a Kubernetes pod are omitted on purpose: devices, placement, ports,
probes and volumes are derived from other fields.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api_types.resources.parts import misplaced
from api_types.resources.parts.base_types import (
    Advice,
    Flag,
    Labels,
    MapKeys,
    NonEmpty,
    ResourceModel,
)

_CACHE = (
    "unknown field; weights are mounted from modelCacheRef, and the platform adds "
    "every other volume"
)
_PLACEMENT = (
    "unknown field; choose hardware through nodeSelector.devices and clusters "
    "through clusterSelector and tolerations"
)
_FIXED = "unknown field; the platform sets it"


class SecretKeyRef(ResourceModel):
    """One key of a Secret on the inference cluster."""

    name: str
    """Name of the Secret."""
    key: str
    """Key within the Secret."""
    optional: Flag | None = None
    """True if the container may start without it."""


class ConfigMapKeyRef(ResourceModel):
    """One key of a ConfigMap on the inference cluster."""

    name: str
    """Name of the ConfigMap."""
    key: str
    """Key within the ConfigMap."""
    optional: Flag | None = None
    """True if the container may start without it."""


class FieldRef(ResourceModel):
    """A field of the pod itself."""

    field_path: str
    """JSON path, such as `status.podIP`."""
    api_version: str | None = None
    """Version of the pod schema that the path refers to."""


class EnvVarSource(ResourceModel):
    """The source of a variable's value; exactly one is set."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "resourceFieldRef": (
            "unknown field; the platform sets the container's resources, so there "
            "is nothing to refer to"
        )
    }

    secret_key_ref: SecretKeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """A key of a ConfigMap."""
    field_ref: FieldRef | None = None
    """A field of the pod."""


class EnvVar(ResourceModel):
    """One environment variable."""

    name: str
    """Name of the variable."""
    value: str | None = None
    """The value itself."""
    value_from: EnvVarSource | None = None
    """The source of the value, instead of `value`."""


class EngineContainer(ResourceModel):
    """The inference engine."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "resources": "unknown field; request GPUs through nodeSelector.devices",
        "ports": "unknown field; engines serve on port 8000 unless engines[].profile.port is set",
        "volumeMounts": _CACHE,
        "envFrom": "unknown field; list the variables in env",
        **dict.fromkeys(("imagePullPolicy", "readinessProbe", "workingDir"), _FIXED),
        "lifecycle": misplaced.DRAIN,
        "securityContext": misplaced.PLATFORM,
        **dict.fromkeys(("livenessProbe", "startupProbe"), misplaced.PROBES),
    }

    name: Annotated[
        Literal["engine"],
        Advice(choice='the single container must be named engine, got "{got}"'),
    ]
    """Always engine."""
    image: NonEmpty
    """Container image."""
    command: tuple[str, ...] | None = None
    """Entry point, passed through."""
    args: tuple[str, ...] | None = None
    """Engine flags, passed through."""
    env: (
        Annotated[tuple[EnvVar, ...], MapKeys(("name",), "variable", unique=False)]
        | None
    ) = None
    """Environment variables."""


class LocalObjectReference(ResourceModel):
    """An object of the same namespace, by name."""

    name: str
    """Name of the object."""


class PodSpec(ResourceModel):
    """The content of the pod."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        "volumes": _CACHE,
        "initContainers": "unknown field; the engine is the only container",
        **dict.fromkeys(("affinity", "nodeSelector", "tolerations"), _PLACEMENT),
        "hostNetwork": _FIXED,
        "terminationGracePeriodSeconds": misplaced.DRAIN,
        **dict.fromkeys(
            ("runtimeClassName", "securityContext", "serviceAccountName"),
            misplaced.PLATFORM,
        ),
    }

    containers: Annotated[
        tuple[EngineContainer, ...],
        Field(min_length=1, max_length=1),
        Advice(
            too_few="exactly 1 container is supported, got {got}",
            too_many="exactly 1 container is supported, got {got}",
        ),
    ]
    """The engine."""
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    """Pull secrets; they must exist on the inference cluster."""


class PodMetadata(ResourceModel):
    """Metadata of the pod."""

    labels: Labels | None = None
    """Pod labels; the prefix modelplane.ai/ is rejected."""
    annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=8192)]], Field(max_length=32)
        ]
        | None
    ) = None
    """Pod annotations."""


class PodTemplate(ResourceModel):
    """The pod of a member."""

    metadata: PodMetadata | None = None
    """Labels and annotations of the pod."""
    spec: Annotated[PodSpec, Advice(missing="required; a member needs a pod to run")]
    """The content of the pod."""
