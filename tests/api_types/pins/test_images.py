"""Every image has a version or a digest, so that all nodes run the same image."""

import pytest
from pydantic import ValidationError

from api_types.model_sources import read_image
from api_types.pins import images
from api_types.sections.caches import CacheSettings, OciSettings
from api_types.sections.workloads import PickerSettings, SidecarSettings
from api_types.settings import Settings, bad_settings, images_by_tag

DIGEST = "sha256:" + "ab" * 32
PINS = {
    name: value
    for name, value in vars(images).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
}


@pytest.mark.parametrize("name", PINS)
def test_each_image_of_a_release_has_a_version(name: str) -> None:
    reference = read_image(PINS[name])
    assert reference.tag not in ("", "latest")


@pytest.mark.parametrize(
    "image",
    [
        "python:3.11",
        f"python@{DIGEST}",
        f"mirror.acme.example:5000/a/python:3.11@{DIGEST}",
    ],
)
def test_an_image_may_be_set_by_tag_and_by_digest(image: str) -> None:
    assert CacheSettings(hydration_image=image).hydration_image == image


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ("python", "must name a digest"),
        ("", "repository"),
        ("Python:3.11", "repository"),
        ("python:3.11@sha256:abc", "64 hex digits"),
        ("python:3.11@md5:" + "ab" * 32, "64 hex digits"),
        ("python: 3.11", "tag"),
        ("https://acme.example/python:3.11", "host"),
    ],
)
def test_an_invalid_image_is_rejected_with_its_setting(image: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"oci": {"kitImage": image}})
    (problem,) = bad_settings(refused.value)
    assert problem.startswith("oci.kitImage: ")
    assert says in problem


def test_images_without_a_digest_are_listed_with_their_settings() -> None:
    assert images_by_tag(Settings()) == [
        f"epp.image: {images.ENDPOINT_PICKER}",
        f"sidecar.image: {images.DISAGGREGATION_SIDECAR}",
        f"cache.hydrationImage: {images.HYDRATION}",
        f"oci.kitImage: {images.KIT}",
    ]
    pinned = Settings(
        epp=PickerSettings(image=f"{images.ENDPOINT_PICKER}@{DIGEST}"),
        sidecar=SidecarSettings(image=f"{images.DISAGGREGATION_SIDECAR}@{DIGEST}"),
        cache=CacheSettings(hydration_image=f"python@{DIGEST}"),
        oci=OciSettings(kit_image=f"{images.KIT}@{DIGEST}"),
    )
    assert images_by_tag(pinned) == []


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (
            "ghcr.io/llm-d/picker:v0.9.0",
            "mirror.acme.example/all/ghcr.io/llm-d/picker:v0.9.0",
        ),
        (f"ghcr.io/a/b:1@{DIGEST}", f"mirror.acme.example/all/ghcr.io/a/b:1@{DIGEST}"),
        (f"quay.io/a@{DIGEST}", f"mirror.acme.example/all/quay.io/a@{DIGEST}"),
        (
            "python:3.11-slim",
            "mirror.acme.example/all/docker.io/library/python:3.11-slim",
        ),
        (
            "docker.io/python:3.11",
            "mirror.acme.example/all/docker.io/library/python:3.11",
        ),
        (
            "index.docker.io/library/python:3.11",
            "mirror.acme.example/all/docker.io/library/python:3.11",
        ),
        ("acme/tool:1", "mirror.acme.example/all/docker.io/acme/tool:1"),
        (
            "Registry.Acme.example:5000/tool:1",
            "mirror.acme.example/all/registry.acme.example_5000/tool:1",
        ),
        ("localhost/tool:1", "mirror.acme.example/all/localhost/tool:1"),
        ("mirror.acme.example/all/tool:1", "mirror.acme.example/all/tool:1"),
        (
            "mirror.acme.example/alle/tool:1",
            "mirror.acme.example/all/mirror.acme.example/alle/tool:1",
        ),
    ],
)
def test_the_name_of_an_image_in_a_mirror_ends_in_its_full_name(
    image: str, name: str
) -> None:
    assert images.mirrored(image, "mirror.acme.example/all") == name
    assert read_image(name).tag == read_image(image).tag
    assert images.mirrored(image, "") == image


NO_MIRRORS = [
    "acme",
    "https://mirror.acme.example",
    "mirror.acme.example/a:1",
    "mirror.acme.example/A",
    "a.b/" + "c" * 128,
]


@pytest.mark.parametrize("mirror", NO_MIRRORS)
def test_an_invalid_mirror_is_rejected(mirror: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"images": {"mirror": mirror}})
    assert bad_settings(refused.value)[0].startswith("images.mirror: ")


def test_an_image_whose_name_in_the_mirror_would_be_too_long_is_refused() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(
            {
                "images": {"mirror": "mirror.acme.example/all"},
                "oci": {"kitImage": f"acme.example/{'k' * 230}:1"},
            }
        )
    assert bad_settings(refused.value) == [
        (
            "oci.kitImage: its name in images.mirror is not valid: host and "
            "repository must have less than 255 characters"
        )
    ]
