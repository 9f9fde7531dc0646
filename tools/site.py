"""Hooks of MkDocs: show files of the repository that a document links to.

The documents are read on GitHub as well, where they link to examples, manifests and code
outside docs/. The site gets a page for each such file and folder, under its own path.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"(^ *```.*?^ *```[^\n]*$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml"}


def repository_path(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    inside = posixpath.join(DOCS, uri)
    if (ROOT / inside).exists():
        return inside
    if uri.endswith("/index.md"):
        return posixpath.join(posixpath.dirname(uri), "README.md")
    return uri if (ROOT / uri).exists() else uri.removesuffix(".md")


def page_of(path: str) -> str:
    """Return the page of the site that shows a file or folder of the repository."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path.endswith("README.md"):
        return posixpath.join(posixpath.dirname(path), "index.md")
    if (ROOT / path).is_dir():
        return posixpath.join(path, "index.md")
    return path if path.endswith(".md") else f"{path}.md"


def targets(text: str, source: str) -> list[str]:
    """Return the paths in the repository that a document links to."""
    folder = posixpath.dirname(source)
    found = []
    for index, part in enumerate(_CODE.split(text)):
        if index % 2 == 0:
            links = (match[1] for match in _LINK.finditer(part))
            found += [
                posixpath.normpath(posixpath.join(folder, link)) for link in links
            ]
    return [path for path in found if (ROOT / path).exists()]


def with_links_of_the_site(text: str, source: str) -> str:
    """Return a document with the links that its page needs."""
    uri, folder = page_of(source), posixpath.dirname(source)

    def renewed(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        if not (ROOT / path).exists():
            return link[0]
        relative = posixpath.relpath(page_of(path), posixpath.dirname(uri) or ".")
        return relative + (link[2] or "")

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(renewed, part) for part in parts[::2]]
    return "".join(parts)


def text_of(path: str) -> str:
    """Return the document that shows a file or folder outside docs/."""
    place = ROOT / path.removesuffix("/README.md")
    if place.suffix == ".md":
        return place.read_text()
    if place.is_file():
        language = _LANGUAGES.get(place.suffix, "text")
        return f"# {path}\n\n````{language}\n{place.read_text()}\n````\n"
    described = place / "README.md"
    names = sorted(
        each.name
        for each in place.iterdir()
        if each != described and not each.name.startswith(("__", "."))
    )
    shown = path.startswith(("examples", "deploy"))
    listed = "".join(
        f"- [{name}]({name})\n" if shown else f"- `{name}`\n" for name in names
    )
    if described.exists():
        return f"{described.read_text()}\n{listed}"
    return f"# {path}\n\n{listed}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each linked file, and for the files that those pages link to."""
    waiting = [
        (repository_path(each.src_uri), each.content_string)
        for each in files.documentation_pages()
    ]
    while waiting:
        source, text = waiting.pop()
        for path in targets(text, source):
            uri = page_of(path)
            if path.startswith(f"{DOCS}/") or files.get_file_from_path(uri):
                continue
            content = text_of(path)
            page = File.generated(
                config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV
            )
            files.append(page)
            waiting.append((repository_path(uri), content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point the links of a page to pages of the site."""
    source = repository_path(page.file.src_uri)
    return with_links_of_the_site(markdown, source)
