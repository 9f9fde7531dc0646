"""Traces of the containers that we bring: off unless the operator turns them on. Engines trace as their user says."""

from activities.render.inputs.settings import RenderSettings
from activities.render.objects.manifest import Json


def environment(settings: RenderSettings, service: str) -> list[Json]:
    """Give the OpenTelemetry variables of one container."""
    return [
        {"name": "OTEL_SERVICE_NAME", "value": service},
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": settings.tracing_endpoint},
        {"name": "OTEL_TRACES_EXPORTER", "value": "otlp"},
        {"name": "OTEL_TRACES_SAMPLER", "value": settings.tracing_sampler},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": settings.tracing_sampler_argument},
    ]


def pod_attributes() -> list[Json]:
    """Say on each span which pod and node it came from; `NAMESPACE` and `POD_NAME` must stand above."""
    node = "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME"
    attributes = f"k8s.namespace.name=$(NAMESPACE),k8s.node.name=$({node}),k8s.pod.name=$(POD_NAME)"
    return [
        {"name": node, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": attributes},
    ]
