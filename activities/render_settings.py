"""The render settings that an operator chose: one mapping from the settings file, for the worker and for `modelplane render`.

It stands outside `render`, which is pure: loading `Settings` reads files and the environment.
"""

from activities.render.inputs.settings import RenderSettings
from api_types.settings import Settings


def render_settings(settings: Settings) -> RenderSettings:
    """Pick the settings that shape rendered objects."""
    return RenderSettings(
        workload_namespace=settings.workloads.namespace,
        engine_requests=settings.workloads.engine_requests,
        shm_size_limit=settings.workloads.shm_size_limit,
        termination_grace_seconds=settings.workloads.termination_grace_seconds,
        toleration_keys=settings.workloads.toleration_keys,
        refused_annotations=settings.workloads.refused_annotations,
        secrets_propagation=settings.secrets.propagation,
        restart_on_rotation=settings.secrets.restart_on_rotation,
        hydration_image=settings.cache.hydration_image,
        hub_endpoint=settings.cache.hub_endpoint,
        kit_image=settings.oci.kit_image,
        allow_plain_http=settings.oci.allow_plain_http,
        cache_mount_read_only=settings.cache.mount_read_only,
        cache_active_deadline_seconds=settings.cache.active_deadline_seconds,
    )
