"""Images are named so that every node gets the same one: by version, and by digest where an operator gives one."""

import pytest
from pydantic import ValidationError

from api_types.model_sources import read_image
from api_types.pins import images
from api_types.settings import CacheSettings, OciSettings, Settings, bad_settings, images_by_tag

DIGEST = "sha256:" + "ab" * 32
PINS = {name: value for name, value in vars(images).items() if name.isupper()}


@pytest.mark.parametrize("name", PINS)
def test_each_image_of_a_release_has_a_version(name: str) -> None:
    reference = read_image(PINS[name])
    assert reference.tag not in ("", "latest")


@pytest.mark.parametrize("image", ["python:3.11", f"python@{DIGEST}", f"mirror.acme.example:5000/a/python:3.11@{DIGEST}"])
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
def test_an_image_that_is_none_is_refused_with_its_setting(image: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"oci": {"kitImage": image}})
    (problem,) = bad_settings(refused.value)
    assert problem.startswith("oci.kitImage: ")
    assert says in problem


def test_images_without_a_digest_are_listed_with_their_settings() -> None:
    assert images_by_tag(Settings()) == [f"cache.hydrationImage: {images.HYDRATION}", f"oci.kitImage: {images.KIT}"]
    pinned = Settings(cache=CacheSettings(hydration_image=f"python@{DIGEST}"), oci=OciSettings(kit_image=f"{images.KIT}@{DIGEST}"))
    assert images_by_tag(pinned) == []
