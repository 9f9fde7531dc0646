"""The generated parts of the documentation are up to date."""

import re
from pathlib import Path

import pytest

from api_types.settings import setting_keys
from tests.docs.generated import PAGES, ROOT, TUTORIALS, USE_CASES, sections
from tests.docs.reference import source
from tests.docs.reference.pages import CONDITIONS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_generates(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert (ROOT / page).read_text() == PAGES[page](), (
        f"{page} is stale: run `make docs-reference`"
    )


@pytest.mark.parametrize("page", ["README.md", *TUTORIALS, *USE_CASES])
def test_the_document_shows_the_output_of_a_command(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "\n$ .venv/bin/modelplane plan --offline" in text


def test_each_use_case_has_a_short_readme_and_all_are_listed() -> None:
    folder = ROOT / "examples" / "use-cases"
    names = {each.name for each in folder.iterdir() if each.is_dir()}
    listed = set(
        re.findall(r"\(([a-z-]+)/README.md\)", (folder / "README.md").read_text())
    )
    assert names == listed == {Path(page).parent.name for page in USE_CASES}
    for page in USE_CASES:
        text = (ROOT / page).read_text().partition("```")[0]
        assert 4 <= len(text.splitlines()) <= 11, page


def test_every_setting_is_described_by_sentences() -> None:
    described = {
        f"{group}.{field.alias}": field.description or ""
        for group, kind in sections()
        for field in kind.model_fields.values()
    }
    assert list(described) == setting_keys()
    assert [key for key, text in described.items() if not text.endswith(".")] == []
    assert [key for key, text in described.items() if "|" in text] == []


def test_every_type_of_condition_is_explained() -> None:
    named = set().union(*source.condition_types().values())
    assert named <= set(CONDITIONS)
    unused = {
        each for each in set(CONDITIONS) - named if not source.kinds_that_name(each)
    }
    assert unused == set()


def test_the_reference_has_reasons_and_events_of_every_kind_with_a_workflow() -> None:
    kinds = {
        "InferenceClass",
        "InferenceCluster",
        "InferenceGateway",
        "ModelCache",
        "ModelDeployment",
        "ModelEndpoint",
        "ModelReplica",
        "ModelService",
    }
    assert kinds <= {one.kind for one in source.reasons()}
    refused = source.Event("ModelDeployment", "Warning", "ScaleRefused", "")
    assert refused in source.events()
    held = source.Reason("ModelDeployment", "", "False", "SeveralAutoscalers")
    assert held in source.reasons()
    assert "modelplane_worker_up" in {one.name for one in source.metrics()}
