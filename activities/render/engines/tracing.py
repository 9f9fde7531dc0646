"""Tracing of the containers that Modelplane adds, off by default.

Users configure the tracing of their engines.
"""

from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json


def environment(settings: RenderSettings, service: str) -> list[Json]:
    """Return the OpenTelemetry variables of one container."""
    return [
        {"name": "OTEL_SERVICE_NAME", "value": service},
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": settings.tracing_endpoint},
        {"name": "OTEL_TRACES_EXPORTER", "value": "otlp"},
        {"name": "OTEL_TRACES_SAMPLER", "value": settings.tracing_sampler},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": settings.tracing_sampler_argument},
    ]


def pod_attributes() -> list[Json]:
    """Return the variables that put the pod and node on each span.

    `NAMESPACE` and `POD_NAME` must be defined before them.
    """
    node = "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME"
    attributes = (
        f"k8s.namespace.name=$(NAMESPACE),k8s.node.name=$({node}),"
        "k8s.pod.name=$(POD_NAME)"
    )
    return [
        {"name": node, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": attributes},
    ]
