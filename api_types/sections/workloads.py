"""Settings of pods on clusters: images, engines, their sidecars, pickers and schedulers."""

from typing import Annotated, Literal

from pydantic import Field

from api_types import labels
from api_types.pins import images
from api_types.sections.base import SettingsSection
from api_types.setting_types import (
    AdoptRenderer,
    Mirror,
    ObjectName,
    OptionalObjectName,
    OptionalQuantity,
    PickerFlags,
    PickerImage,
    QualifiedName,
    RefusedAnnotation,
    Requests,
    Seconds,
    WorkloadNamespace,
)

# Far more than the registries of one installation, and few enough for a pod.
_PULL_SECRETS_MAX = 8
_PICKERS_MAX = 16
_WEIGHT_MAX = 1000


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
