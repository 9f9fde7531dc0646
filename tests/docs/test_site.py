"""The documentation site builds without a warning and loads nothing from other sites."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tools.site import text_of, with_links_of_the_site

ROOT = Path(__file__).parents[2]
# The attributes of which a browser loads the address without a click.
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "object": "data",
}


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "-f",
            configuration,
            "-d",
            folder,
        ],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a page loads, and classes that make the theme load more."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.classes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.addresses.add(values.get(LOADED.get(tag, "")) or "")
        self.classes.update((values.get("class") or "").split())


@pytest.mark.slow
def test_no_page_loads_anything_from_another_site(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    found = {}
    for page in pages:
        read = Loads()
        read.feed(page.read_text())
        others = {each for each in read.addresses if re.match(r"(\w+:)?//", each)}
        # For diagrams of Mermaid, the theme loads a script of another site.
        if others or "mermaid" in read.classes:
            found[str(page)] = others
    assert len(pages) > 50
    assert found == {}
    sheets = "".join(each.read_text() for each in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheets) == []


@pytest.mark.slow
def test_the_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {each["location"].partition("#")[0] for each in index["docs"]}
    pages = {
        page.parent.relative_to(site).as_posix().removeprefix(".") + "/"
        for page in site.rglob("index.html")
    }
    assert {place or "/" for place in places} == pages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](missing.md)", "'missing.md'"),
        ("[a](#missing)", "'#missing'"),
        ("[a](../missing.yaml)", "'../missing.yaml'"),
    ],
)
def test_a_broken_link_fails_the_build(text: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "index.md").write_text(f"# A page\n\n{text}\n")
    configuration = (
        (ROOT / "mkdocs.yml").read_text().replace("[tools/", f"[{ROOT}/tools/")
    )
    without_nav = configuration.partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(without_nav)
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    ("source", "link", "shown"),
    [
        ("docs/adr/README.md", "../index.md#a", "../index.md#a"),
        (
            "docs/adr/README.md",
            "../../examples/testbed/demo.yaml",
            "../examples/testbed/demo.yaml.md",
        ),
        ("docs/adr/README.md", "../../examples", "../examples/index.md"),
        ("docs/adr/README.md", "../../SECURITY.md#b", "../SECURITY.md#b"),
        ("docs/adr/README.md", "../../README.md", "../index.md"),
        ("SECURITY.md", "docs/adr/README.md", "adr/README.md"),
        ("examples/README.md", "testbed/demo.yaml", "testbed/demo.yaml.md"),
        ("docs/adr/README.md", "missing.md", "missing.md"),
        ("docs/adr/README.md", "https://temporal.io/a.md", "https://temporal.io/a.md"),
    ],
)
def test_links_out_of_the_documents_lead_to_pages_of_the_site(
    source: str, link: str, shown: str
) -> None:
    renewed = with_links_of_the_site(f"[a]({link}), `[b]({link})`", source)
    assert renewed == f"[a]({shown}), `[b]({link})`"


def test_a_file_of_the_repository_is_shown_as_code() -> None:
    shown = text_of("examples/testbed/demo.yaml")
    assert shown.startswith("# examples/testbed/demo.yaml\n\n````yaml\n")
