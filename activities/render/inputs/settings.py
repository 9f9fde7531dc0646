"""The rendering settings that an operator may choose, with their defaults.

The comments give the dotted keys of the settings file. Reading that file
(`api_types/settings.py`) rejects values that no renderer supports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api_types import labels
from api_types.pins import images
from api_types.setting_types import MIRROR


def _engine_requests() -> Mapping[str, str]:
    # The values are small. They make an engine pod Burstable, and admission controllers
    # have requests to count. The GPU determines on which nodes the pod fits.
    return {"cpu": "100m", "memory": "256Mi"}


def _picker_requests() -> Mapping[str, str]:
    return {"cpu": "500m", "memory": "1Gi"}


def _picker_limits() -> Mapping[str, str]:
    return {"memory": "4Gi"}


@dataclass(frozen=True)
class RenderSettings:
    """The settings that shape rendered objects. Times are in seconds; 0 means none."""

    # images.mirror: empty for none
    image_mirror: str = ""
    # images.pullSecrets
    pull_secrets: tuple[str, ...] = ()

    # workloads.namespace: `mirror`, or the name of one shared namespace
    workload_namespace: str = MIRROR
    # workloads.engineRequests
    engine_requests: Mapping[str, str] = field(default_factory=_engine_requests)
    # workloads.shmSizeLimit: a quantity, empty for the kernel's own limit
    shm_size_limit: str = ""
    # workloads.terminationGraceSeconds
    termination_grace_seconds: int = 30
    # workloads.tolerationKeys: in addition to those of the claimed drivers; empty means
    # the key of NVIDIA
    toleration_keys: tuple[str, ...] = ()
    # workloads.refusedAnnotations: `example.com/` covers all keys of that domain
    refused_annotations: tuple[str, ...] = labels.REFUSED_ANNOTATIONS
    # workloads.startupSeconds: adds a startup probe that allows this long
    startup_seconds_max: int = 0

    # epp.image
    epp_image: str = images.ENDPOINT_PICKER
    # epp.replicas
    epp_replicas: int = 1
    # epp.failureMode
    epp_failure_mode: str = "FailOpen"
    # epp.metricsAuth
    epp_metrics_auth: bool = False
    # epp.extraFlags
    epp_extra_flags: Mapping[str, str] = field(default_factory=dict)
    # epp.kvCacheUtilizationWeight: 0 leaves that scorer out
    epp_kv_cache_weight: int = 2
    # stack.longestGeneration
    longest_generation: int = 3600
    # epp.requests
    epp_requests: Mapping[str, str] = field(default_factory=_picker_requests)
    # epp.limits
    epp_limits: Mapping[str, str] = field(default_factory=_picker_limits)
    # stack.tolerations
    pod_tolerations: tuple[Mapping[str, str], ...] = ()
    # stack.priorityClassName: empty for none
    pod_priority_class: str = ""
    # stack.affinity
    pod_affinity: Mapping[str, Any] = field(default_factory=dict)
    # sidecar.image
    sidecar_image: str = images.DISAGGREGATION_SIDECAR

    # secrets.propagation
    secrets_propagation: str = "labelled"
    # secrets.restartOnRotation
    restart_on_rotation: bool = False
    # monitoring.enabled, where the cluster serves PodMonitors
    monitoring_enabled: bool = True
    # scheduler.kaiMode
    kai_mode: str = "auto"
    # scheduler.priorityClass
    scheduler_priority_class: str = ""

    # tracing.enabled
    tracing_enabled: bool = False
    # tracing.endpoint: an OTLP address
    tracing_endpoint: str = "http://otel-collector.monitoring.svc:4317"
    # tracing.sampler
    tracing_sampler: str = "parentbased_traceidratio"
    # tracing.samplerArgument
    tracing_sampler_argument: str = "0.01"

    # cache.hydrationImage
    hydration_image: str = images.HYDRATION
    # cache.hubEndpoint: a mirror of the hub; empty for the client's default
    hub_endpoint: str = ""
    # oci.kitImage
    kit_image: str = images.KIT
    # oci.allowPlainHttp
    allow_plain_http: bool = False
    # cache.pipIndexUrl: the index from which the hub's client is installed; empty for
    # the client's default
    pip_index_url: str = ""
    # s3.allowPlainHttp
    allow_plain_s3: bool = False
    # cache.mountReadOnly
    cache_mount_read_only: bool = False
    # cache.activeDeadlineSeconds
    cache_active_deadline_seconds: int = 21600


def workload_namespace(namespace: str, settings: RenderSettings) -> str:
    """Return the namespace on a cluster for objects of `namespace`.

    Replicas and caches must use the same one, because pods mount only claims of their
    own namespace.
    """
    return (
        namespace
        if settings.workload_namespace == MIRROR
        else settings.workload_namespace
    )
