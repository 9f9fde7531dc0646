"""Which access to its source a cache asks for, and what of it the operator allows."""

from activities.render.cache.artifact import SOURCE_S3, Artifact
from activities.render.cache.options import HydrationOptions, read_options
from activities.render.inputs.facts import CacheInput
from activities.render.inputs.findings import Findings, NotRenderable
from activities.render.inputs.settings import RenderSettings


class PlainHttpRefused(NotRenderable):
    """The cache asks for a registry without TLS, which the operator does not allow."""

    reason = "PlainHttpRefused"


def options_of(cache: CacheInput) -> HydrationOptions:
    """Read how the Jobs of a cache reach its source. Raises InvalidSpec with all problems."""
    findings = Findings()
    options = read_options(cache.spec, findings)
    findings.raise_if_any(f"ModelCache {cache.namespace}/{cache.name}")
    return options


def check_plain_http(cache: CacheInput, artifact: Artifact, settings: RenderSettings) -> None:
    """Raise PlainHttpRefused for a source without TLS that the operator does not allow."""
    if artifact.plain_http and not allows_plain_http(artifact, settings):
        s3 = artifact.source == SOURCE_S3
        field, setting = ("spec.s3.endpoint without TLS", "s3.allowPlainHttp") if s3 else ("spec.oci.plainHTTP", "oci.allowPlainHttp")
        problem = f"{field} is refused unless the operator sets {setting}"
        raise PlainHttpRefused(f"ModelCache {cache.namespace}/{cache.name}", (problem,))


def allows_plain_http(artifact: Artifact, settings: RenderSettings) -> bool:
    """Tell whether the operator allows the artifact's source without TLS."""
    return settings.allow_plain_s3 if artifact.source == SOURCE_S3 else settings.allow_plain_http
