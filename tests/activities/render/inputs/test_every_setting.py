"""Every setting of the renderers changes the objects that it affects, and no others.

Each setting is set in the file and in the environment.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from activities.render.inputs.findings import NotRenderable
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.propagation import SECRET, Reference, Source, plan
from activities.render_settings import render_settings
from api_types.environment import CONFIG_VARIABLE, variable_of
from api_types.pins import images
from api_types.settings import Settings, setting_keys
from fleet_client.configuration import write_settings
from tests.activities.render.settings_cases import CASES, MIRROR, SCENARIOS, WITH, Case

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "settings.md"
HASHES = ("modelplane.ai/render-hash", "modelplane.ai/template-hash")


def _bare(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {
            name: _bare(inner) for name, inner in tree.items() if name not in HASHES
        }
    return [_bare(inner) for inner in tree] if isinstance(tree, list) else tree


def everything(settings: RenderSettings) -> dict[str, str]:
    """Return every object of all scenarios without their hashes.

    The result also contains the decision about the copy of an unlabelled Secret.
    """
    found = {
        "plan": str(
            plan(
                "ml-team",
                [Reference(SECRET, "hub")],
                {"Secret/hub": Source()},
                settings,
            )
        )
    }
    for scenario, render in SCENARIOS.items():
        try:
            rendered = render(settings)
        except NotRenderable as refused:
            found[f"{scenario}/refused"] = str(refused)
        else:
            found |= {
                f"{scenario}/{item.key}": json.dumps(
                    _bare(item.manifest), sort_keys=True
                )
                for item in rendered.objects
            }
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {
        key: after.get(key, "")
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }


def test_every_setting_of_the_renderers_has_a_case() -> None:
    assert {case.field for case in CASES} == {
        field.name for field in fields(RenderSettings)
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_a_setting_is_documented_and_changes_only_its_own_objects(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case.key in setting_keys()
    assert f"| `{case.key}` |" in REFERENCE.read_text()
    group, _, name = case.key.partition(".")
    others = WITH.get(case.key, {}).get(group, {})
    for variable in others:
        monkeypatch.setenv(
            variable_of(f"{group}.{variable}"), json.dumps(others[variable])
        )
    before = everything(render_settings(Settings()))
    write_settings(tmp_path / "mine.yaml", {group: {name: case.value}})
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "mine.yaml"))
    by_file = render_settings(Settings())
    monkeypatch.delenv(CONFIG_VARIABLE)
    monkeypatch.setenv(
        variable_of(case.key),
        case.value if isinstance(case.value, str) else json.dumps(case.value),
    )
    assert render_settings(Settings()) == by_file
    different = changed(before, everything(by_file))
    assert [
        pattern
        for pattern in case.changes
        if not any(fnmatch(key, pattern) for key in different)
    ] == []
    assert [
        key
        for key in different
        if not any(fnmatch(key, pattern) for pattern in case.changes)
    ] == []
    assert [
        key for key, text in different.items() if case.shows not in text and text
    ] == []


def test_the_file_and_the_renderers_have_equal_defaults() -> None:
    assert render_settings(Settings()) == RenderSettings()


def images_of(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        return [
            *(value for name, value in tree.items() if name == "image"),
            *(each for inner in tree.values() for each in images_of(inner)),
        ]
    return (
        [each for inner in tree for each in images_of(inner)]
        if isinstance(tree, list)
        else []
    )


def test_a_mirror_renames_every_image_of_this_project_and_none_of_a_user() -> None:
    """An air-gapped cluster then pulls all platform images from one registry."""
    pins = [
        image
        for name, image in vars(images).items()
        if name.isupper() and isinstance(image, str) and ":" in image
    ]
    plain, mirrored = (
        RenderSettings(),
        render_settings(Settings.model_validate({"images": {"mirror": MIRROR}})),
    )
    seen = set()
    for render in (SCENARIOS[name] for name in ("one", "kai", "pair", "hub", "oci")):
        for item, other in zip(
            render(plain).objects, render(mirrored).objects, strict=True
        ):
            for image, renamed in zip(
                images_of(item.manifest), images_of(other.manifest), strict=True
            ):
                assert renamed == (
                    image if image == "acme/vllm:1" else images.mirrored(image, MIRROR)
                )
                seen.add(renamed)
    assert seen == {*(images.mirrored(image, MIRROR) for image in pins), "acme/vllm:1"}


def test_a_running_job_is_replaced_after_a_change_of_the_mirror_but_not_of_the_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def job_hash(mirror: str) -> str:
        settings = render_settings(
            Settings.model_validate({"images": {"mirror": mirror}})
        )
        found: str = (
            SCENARIOS["hub"](settings)
            .objects[-1]
            .manifest["metadata"]["annotations"]["modelplane.ai/template-hash"]
        )
        return found

    before = {mirror: job_hash(mirror) for mirror in ("", MIRROR, "other.acme.example")}
    assert len(set(before.values())) == 3
    monkeypatch.setattr(images, "HYDRATION", "python:3.99")
    # The defaults of settings are read on import, so the test passes the newer
    # release's default explicitly.
    newer = RenderSettings(
        image_mirror=MIRROR, hydration_image=images.mirrored("python:3.99", MIRROR)
    )
    assert (
        SCENARIOS["hub"](newer)
        .objects[-1]
        .manifest["metadata"]["annotations"]["modelplane.ai/template-hash"]
        == before[MIRROR]
    )
