"""Convert the operator's settings into `RenderSettings`.

The worker and `modelplane render` share this conversion. It is not part of `render`,
which is pure: loading `Settings` reads files and the environment.
"""

from activities.render.inputs.settings import RenderSettings
from api_types.pins.images import mirrored
from api_types.settings import Settings


def render_settings(settings: Settings) -> RenderSettings:
    """Return the settings that shape rendered objects, with mirrored image names."""
    mirror = settings.images.mirror
    return RenderSettings(
        image_mirror=mirror,
        pull_secrets=settings.images.pull_secrets,
        workload_namespace=settings.workloads.namespace,
        engine_requests=settings.workloads.engine_requests,
        shm_size_limit=settings.workloads.shm_size_limit,
        termination_grace_seconds=settings.workloads.termination_grace_seconds,
        toleration_keys=settings.workloads.toleration_keys,
        refused_annotations=settings.workloads.refused_annotations,
        startup_seconds_max=settings.workloads.startup_seconds,
        epp_image=mirrored(settings.epp.image, mirror),
        epp_replicas=settings.epp.replicas,
        epp_failure_mode=settings.epp.failure_mode,
        epp_metrics_auth=settings.epp.metrics_auth,
        epp_extra_flags=settings.epp.extra_flags,
        epp_kv_cache_weight=settings.epp.kv_cache_utilization_weight,
        longest_generation=settings.stack.longest_generation,
        epp_requests=settings.epp.requests,
        epp_limits=settings.epp.limits,
        pod_tolerations=tuple(settings.stack.tolerations),
        pod_priority_class=settings.stack.priority_class_name,
        pod_affinity=settings.stack.affinity,
        sidecar_image=mirrored(settings.sidecar.image, mirror),
        secrets_propagation=settings.secrets.propagation,
        restart_on_rotation=settings.secrets.restart_on_rotation,
        monitoring_enabled=settings.monitoring.enabled,
        kai_mode=settings.scheduler.kai_mode,
        scheduler_priority_class=settings.scheduler.priority_class,
        tracing_enabled=settings.tracing.enabled,
        tracing_endpoint=settings.tracing.endpoint,
        tracing_sampler=settings.tracing.sampler,
        tracing_sampler_argument=str(settings.tracing.sampler_argument),
        hydration_image=mirrored(settings.cache.hydration_image, mirror),
        hub_endpoint=settings.cache.hub_endpoint,
        pip_index_url=settings.cache.pip_index_url,
        kit_image=mirrored(settings.oci.kit_image, mirror),
        allow_plain_http=settings.oci.allow_plain_http,
        allow_plain_s3=settings.s3.allow_plain_http,
        cache_mount_read_only=settings.cache.mount_read_only,
        cache_active_deadline_seconds=settings.cache.active_deadline_seconds,
    )
