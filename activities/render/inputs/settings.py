"""What an operator may choose about rendering, with the defaults.

The dotted keys of the settings file are beside the fields. Everything is checked when the object is made, so that a renderer never gets a
setting that it does not support.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from api_types import labels
from api_types.pins import images

MIRROR = "mirror"
_IMAGE_GENERATION = re.compile(r":v(\d+)\.(\d+)[^/@]*(?:@sha256:[0-9a-f]{64})?$")
# Plugin names and flags of the picker change between minor releases: the configuration and the image are one unit.
PICKER_GENERATIONS = frozenset({"0.9"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "epp_failure_mode": ("FailOpen", "FailClose"),
    "secrets_propagation": ("off", "labelled", "all"),
    "kai_mode": ("auto", "explicit"),
    "gateway_scheme": ("http", "https"),
}


class InvalidSettings(ValueError):
    """Settings that rendering does not support; `problems` holds all of them."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def _engine_requests() -> Mapping[str, str]:
    # Small, so that an engine pod is Burstable and admission layers have something to count; the GPU decides where it fits.
    return {"cpu": "100m", "memory": "256Mi"}


@dataclass(frozen=True)
class RenderSettings:
    """The settings that shape rendered objects. Times are in seconds; 0 means none."""

    workload_namespace: str = MIRROR  # workloads.namespace: `mirror`, or the name of one shared namespace
    engine_requests: Mapping[str, str] = field(default_factory=_engine_requests)  # workloads.engineRequests
    shm_size_limit: str = ""  # workloads.shmSizeLimit: a quantity, empty for the kernel's own limit
    termination_grace_seconds: int = 30  # workloads.terminationGraceSeconds
    toleration_keys: tuple[str, ...] = ()  # workloads.tolerationKeys: besides those of the claimed drivers; none: that of NVIDIA
    refused_annotations: tuple[str, ...] = labels.REFUSED_ANNOTATIONS  # workloads.refusedAnnotations: `example.com/` is all of them
    startup_seconds_max: int = 0  # workloads.startupSeconds: adds a startup probe that allows this long

    epp_image: str = images.ENDPOINT_PICKER  # epp.image
    epp_replicas: int = 1  # epp.replicas
    epp_failure_mode: str = "FailOpen"  # epp.failureMode
    epp_metrics_auth: bool = False  # epp.metricsAuth
    epp_extra_flags: Mapping[str, str] = field(default_factory=dict)  # epp.extraFlags
    epp_kv_cache_weight: int = 0  # epp.kvCacheUtilizationWeight: 0 leaves that scorer out
    sidecar_image: str = images.DISAGGREGATION_SIDECAR  # sidecar.image

    secrets_propagation: str = "labelled"  # secrets.propagation
    restart_on_rotation: bool = False  # secrets.restartOnRotation
    monitoring_enabled: bool | None = None  # monitoring.enabled: None means where the cluster serves PodMonitors
    kai_mode: str = "auto"  # scheduler.kaiMode
    scheduler_priority_class: str = ""  # scheduler.priorityClass
    gateway_scheme: str = "http"  # gateway.scheme

    tracing_enabled: bool = False  # tracing.enabled
    tracing_endpoint: str = "http://otel-collector.monitoring.svc:4317"  # tracing.endpoint: an OTLP address
    tracing_sampler: str = "parentbased_traceidratio"  # tracing.sampler
    tracing_sampler_argument: str = "0.01"  # tracing.samplerArgument

    hydration_image: str = images.HYDRATION  # cache.hydrationImage
    hub_endpoint: str = ""  # cache.hubEndpoint: a mirror of the hub; empty: the client's own
    kit_image: str = images.KIT  # oci.kitImage
    allow_plain_http: bool = False  # oci.allowPlainHttp
    cache_mount_read_only: bool = False  # cache.mountReadOnly
    cache_active_deadline_seconds: int = 21600  # cache.activeDeadlineSeconds

    drain_seconds: int = 15  # teardown.drainSeconds

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {getattr(self, name)!r}, must be one of {', '.join(choices)}"
            for name, choices in _CHOICES.items()
            if getattr(self, name) not in choices
        ]
        problems += [
            f"{name} is {getattr(self, name)}, must be 0 or more"
            for name in (
                "termination_grace_seconds",
                "startup_seconds_max",
                "epp_kv_cache_weight",
                "cache_active_deadline_seconds",
                "drain_seconds",
            )
            if getattr(self, name) < 0
        ]
        if self.epp_replicas < 1:
            problems.append(f"epp_replicas is {self.epp_replicas}, must be 1 or more")
        problems += [
            f"{name} is {image!r}: its tag must start with one of {', '.join(f'v{known}' for known in sorted(PICKER_GENERATIONS))}, "
            "because plugin names and flags differ between releases"
            for name, image in (("epp_image", self.epp_image), ("sidecar_image", self.sidecar_image))
            if _generation(image) not in PICKER_GENERATIONS
        ]
        if problems:
            raise InvalidSettings(tuple(problems))


def _generation(image: str) -> str:
    found = _IMAGE_GENERATION.search(image)
    return f"{found[1]}.{found[2]}" if found else ""


def workload_namespace(namespace: str, settings: RenderSettings) -> str:
    """Give the namespace on a cluster for what belongs to `namespace`. Replicas and caches must agree: pods mount only local claims."""
    return namespace if settings.workload_namespace == MIRROR else settings.workload_namespace
