"""Every container image that the control plane itself runs on a cluster.

Users choose the engine images. Each image here is the default of a setting, so that
users can set a mirror or a digest. A reference here may also end in a digest
(`name:tag@sha256:...`): take it from the registry when you raise the version, never
from another source.
"""

import re

from api_types.model_sources import read_image

ENDPOINT_PICKER = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
DISAGGREGATION_SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
HYDRATION = "python:3.11-slim"
KIT = "ghcr.io/kitops-ml/kitops:v1.11.0"

# Plugin names and flags of the picker change between minor releases, so the rendered
# configuration fits only these images.
PICKER_RELEASES = frozenset({"0.9"})

_PUBLIC_HOST = "docker.io"
_PUBLIC_FOLDER = "library"
_RELEASE = re.compile(r"v(\d+\.\d+)")


def picker_release(image: str) -> str:
    """Return the minor release in the tag of an image, or ""."""
    found = _RELEASE.match(read_image(image).tag)
    return found[1] if found else ""


def mirrored(image: str, mirror: str) -> str:
    """Return the name of an image in a mirror (`registry.example.com/folder`).

    It consists of the mirror and the full name of the image. The host of the image is
    part of it, so no two images share a name. The default host and folder of a short
    name are written out. A port becomes `_5000`, because paths in registries have no
    colon. Tag and digest stay. The name does not change without a mirror, or if the
    image is in the mirror already.
    """
    if not mirror or image.startswith(f"{mirror}/"):
        return image
    reference = read_image(image)
    host, repository = reference.host or _PUBLIC_HOST, reference.repository
    if host in (_PUBLIC_HOST, f"index.{_PUBLIC_HOST}"):
        host, repository = (
            _PUBLIC_HOST,
            repository if "/" in repository else f"{_PUBLIC_FOLDER}/{repository}",
        )
    tag, digest = (
        reference.tag and f":{reference.tag}",
        reference.digest and f"@{reference.digest}",
    )
    return f"{mirror}/{host.lower().replace(':', '_')}/{repository}{tag}{digest}"
