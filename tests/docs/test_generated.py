"""The generated parts of the documentation are up to date."""

import pytest

from api_types.settings import setting_keys
from tests.docs.generated import PAGES, ROOT, readme, sections


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_generates(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert (ROOT / page).read_text() == PAGES[page](), (
        f"{page} is stale: run `make docs-reference`"
    )


def test_the_readme_shows_the_output_of_a_command() -> None:
    assert "```console\n$ .venv/bin/modelplane plan --offline" in readme()


def test_every_setting_is_described_by_sentences() -> None:
    described = {
        f"{group}.{field.alias}": field.description or ""
        for group, kind in sections()
        for field in kind.model_fields.values()
    }
    assert list(described) == setting_keys()
    assert [key for key, text in described.items() if not text.endswith(".")] == []
    assert [key for key, text in described.items() if "|" in text] == []
