"""Tasks and files that the documents name exist."""

import json
import re
from pathlib import Path

import pytest

from api_types.messages.entities import SetSpec
from api_types.validation.manifests import admit
from client.manifests.checks import CHECKS

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests" / "golden" / "README.md"]
}
PACKAGES = ("activities", "api_types", "client", "deploy", "docs", "examples", "front", "scheduler", "testbed", "tests", "workflows")


def test_every_task_that_is_shown_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    shown = {task for text in DOCUMENTS.values() for task in re.findall(r"(?:^|`| )make ([a-z-]+)(?:`|  |$)", text, flags=re.MULTILINE)}
    assert {"demo", "test", "check"} <= shown <= targets


def named_paths(text: str) -> set[str]:
    """Paths below a package, in code or as the target of a link. Addresses of other sites have none."""
    return set(re.findall(rf"(?:`|\b)((?:{'|'.join(PACKAGES)})/[\w./-]*[\w/])", re.sub(r"https?://\S+", "", text)))


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_every_path_that_a_document_names_exists(document: str) -> None:
    assert [path for path in sorted(named_paths(DOCUMENTS[document])) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", DOCUMENTS[document])
    here = (ROOT / document).parent
    assert [link for link in links if "://" not in link and not (here / link).exists()] == []


def test_the_argument_for_the_temporal_cli_is_a_set_spec_with_a_good_manifest() -> None:
    order = SetSpec.model_validate_json((ROOT / "examples" / "signals" / "set-spec.json").read_text(), extra="forbid")
    admitted = admit(json.loads(json.dumps(order.manifest)), CHECKS)
    assert (admitted.manifest.metadata.name, admitted.warnings) == ("by-signal", ())
