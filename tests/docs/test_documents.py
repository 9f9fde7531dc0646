"""Commands, files, links and anchors in the documents exist."""

import json
import re
from pathlib import Path

import pytest

from api_types.messages.entities import SetSpec
from api_types.validation.manifests import admit
from fleet_client.checks import CHECKS

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "tests" / "golden" / "README.md",
    ]
}
# Every page of the repository, also those of packages and tests.
MARKDOWN = sorted(
    path.relative_to(ROOT).as_posix()
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
PACKAGES = sorted(
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and not path.name.startswith(".") and path.name != "build"
)


def test_every_task_that_is_shown_is_a_target_of_the_makefile() -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    )
    shown = {
        task
        for text in DOCUMENTS.values()
        for task in re.findall(
            r"(?:^|`)make ([a-z-]+)(?:`|  |$)", text, flags=re.MULTILINE
        )
    }
    assert {"demo", "test", "check"} <= shown <= targets


def named_paths(text: str) -> set[str]:
    """Return the paths below a package that a document names, without URLs of other sites."""
    return set(
        re.findall(
            rf"(?<![\w.:-])(?<!\w/)((?:{'|'.join(PACKAGES)})/[\w./-]*[\w/])",
            re.sub(r"https?://\S+", "", text),
        )
    )


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_every_path_that_a_document_names_exists(document: str) -> None:
    assert [
        path
        for path in sorted(named_paths(DOCUMENTS[document]))
        if not (ROOT / path).exists()
    ] == []


def without_code(text: str) -> str:
    """Remove code blocks and code spans, which may contain text that looks like a link."""
    blocks = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`", "", blocks)


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, made as GitHub makes them."""
    blocks = r"^ *```.*?^ *```"
    text = re.sub(blocks, "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w -]", "", shown.lower()).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
        if found[anchor]:
            found[f"{anchor}-{found[anchor]}"] = 0
    return set(found)


def resolves(document: Path, link: str) -> bool:
    """Return whether the file of a relative link exists and has the link's anchor."""
    path, _, anchor = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    if not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors(target))


@pytest.mark.parametrize("document", MARKDOWN)
def test_every_relative_link_resolves_with_its_anchor(document: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", without_code((ROOT / document).read_text()))
    relative = [link for link in links if "://" not in link]
    assert [link for link in relative if not resolves(ROOT / document, link)] == []


def test_a_link_to_a_missing_file_or_anchor_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(
        "# A title\n\n## `get -w`, twice\n\n## A title\n\n```\n# no\n```\n"
    )
    assert anchors(document) == {"a-title", "get--w-twice", "a-title-1"}
    links = ["page.md", "#a-title", "page.md#get--w-twice", "other.md", "#no"]
    assert [resolves(document, link) for link in links] == [True] * 3 + [False] * 2


def test_the_argument_for_the_temporal_cli_is_a_set_spec_with_a_good_manifest() -> None:
    order = SetSpec.model_validate_json(
        (ROOT / "examples" / "signals" / "set-spec.json").read_text(), extra="forbid"
    )
    admitted = admit(json.loads(json.dumps(order.manifest)), CHECKS)
    assert (admitted.manifest.metadata.name, admitted.warnings) == ("by-signal", ())
