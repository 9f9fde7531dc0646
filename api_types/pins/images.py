"""Every container image that the control plane itself runs on a cluster.

Engine images are given by users. Each image here is the default of a setting, so that a mirror, or a digest, can be used instead. A
reference here may end in a digest too (`name:tag@sha256:...`): take it from the registry when the version is raised, never from elsewhere.
"""

import re

from api_types.model_sources import read_image

ENDPOINT_PICKER = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.9.0"
DISAGGREGATION_SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0"
HYDRATION = "python:3.11-slim"
KIT = "ghcr.io/kitops-ml/kitops:v1.11.0"

# Plugin names and flags of the picker change between minor releases: the configuration that is rendered and the image are one unit.
PICKER_RELEASES = frozenset({"0.9"})

_PUBLIC_HOST = "docker.io"
_PUBLIC_FOLDER = "library"
_RELEASE = re.compile(r"v(\d+\.\d+)")


def picker_release(image: str) -> str:
    """Give the minor release that the tag of an image names, empty if it names none."""
    found = _RELEASE.match(read_image(image).tag)
    return found[1] if found else ""


def mirrored(image: str, mirror: str) -> str:
    """Give the name of an image in a mirror (`registry.example.com/folder`): that of the mirror and the whole name of the image.

    The host of the image is part of it, so no two images have one name there. What a client of registries adds to a short name is written
    out; a port becomes `_5000`, because folders of registries have no colon. Tag and digest stay. Nothing changes without a mirror, and
    for an image that is in it already.
    """
    if not mirror or image.startswith(f"{mirror}/"):
        return image
    reference = read_image(image)
    host, repository = reference.host or _PUBLIC_HOST, reference.repository
    if host in (_PUBLIC_HOST, f"index.{_PUBLIC_HOST}"):
        host, repository = _PUBLIC_HOST, repository if "/" in repository else f"{_PUBLIC_FOLDER}/{repository}"
    tag, digest = reference.tag and f":{reference.tag}", reference.digest and f"@{reference.digest}"
    return f"{mirror}/{host.lower().replace(':', '_')}/{repository}{tag}{digest}"
