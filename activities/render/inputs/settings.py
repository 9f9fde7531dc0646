"""What an operator may choose about rendering, with the defaults.

The dotted keys of the settings file are beside the fields. Reading that file (`api_types/settings.py`) refuses what no renderer supports.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from api_types import labels
from api_types.pins import images
from api_types.setting_types import MIRROR


def _engine_requests() -> Mapping[str, str]:
    # Small, so that an engine pod is Burstable and admission layers have something to count; the GPU decides where it fits.
    return {"cpu": "100m", "memory": "256Mi"}


@dataclass(frozen=True)
class RenderSettings:
    """The settings that shape rendered objects. Times are in seconds; 0 means none."""

    image_mirror: str = ""  # images.mirror: empty for none
    pull_secrets: tuple[str, ...] = ()  # images.pullSecrets

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
    monitoring_enabled: bool = True  # monitoring.enabled, where the cluster serves PodMonitors
    kai_mode: str = "auto"  # scheduler.kaiMode
    scheduler_priority_class: str = ""  # scheduler.priorityClass

    tracing_enabled: bool = False  # tracing.enabled
    tracing_endpoint: str = "http://otel-collector.monitoring.svc:4317"  # tracing.endpoint: an OTLP address
    tracing_sampler: str = "parentbased_traceidratio"  # tracing.sampler
    tracing_sampler_argument: str = "0.01"  # tracing.samplerArgument

    hydration_image: str = images.HYDRATION  # cache.hydrationImage
    hub_endpoint: str = ""  # cache.hubEndpoint: a mirror of the hub; empty: the client's own
    kit_image: str = images.KIT  # oci.kitImage
    allow_plain_http: bool = False  # oci.allowPlainHttp
    pip_index_url: str = ""  # cache.pipIndexUrl: where the hub's client is installed from; empty: the client's own
    allow_plain_s3: bool = False  # s3.allowPlainHttp
    cache_mount_read_only: bool = False  # cache.mountReadOnly
    cache_active_deadline_seconds: int = 21600  # cache.activeDeadlineSeconds


def workload_namespace(namespace: str, settings: RenderSettings) -> str:
    """Give the namespace on a cluster for what belongs to `namespace`. Replicas and caches must agree: pods mount only local claims."""
    return namespace if settings.workload_namespace == MIRROR else settings.workload_namespace
