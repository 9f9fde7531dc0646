"""How a cache accesses its source, and what the operator allows."""

from activities.render.cache.artifact import SOURCE_S3, Artifact
from activities.render.cache.options import HydrationOptions, read_options
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.settings import RenderSettings


class PlainHttpRefused(NotRenderable):
    """The cache uses a source without TLS, which the operator does not allow."""

    reason = "PlainHttpRefused"


def options_of(cache: CacheInput) -> HydrationOptions:
    """Return how the Jobs of a cache reach its source. Raises InvalidSpec."""
    findings = Findings()
    options = read_options(cache.spec, findings)
    findings.raise_if_any(f"ModelCache {cache.namespace}/{cache.name}")
    return options


def check_plain_http(
    cache: CacheInput, artifact: Artifact, settings: RenderSettings
) -> None:
    """Raise PlainHttpRefused for a source without TLS unless the operator allows it."""
    if artifact.plain_http and not allows_plain_http(artifact, settings):
        field, setting = "spec.oci.plainHTTP", "oci.allowPlainHttp"
        if artifact.source == SOURCE_S3:
            field, setting = "spec.s3.endpoint without TLS", "s3.allowPlainHttp"
        problem = f"{field} is refused unless the operator sets {setting}"
        raise PlainHttpRefused(f"ModelCache {cache.namespace}/{cache.name}", (problem,))


def allows_plain_http(artifact: Artifact, settings: RenderSettings) -> bool:
    return (
        settings.allow_plain_s3
        if artifact.source == SOURCE_S3
        else settings.allow_plain_http
    )
