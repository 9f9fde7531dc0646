"""The page's files: content negotiation at `/`, headers, completeness, and colour
contrast.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiohttp.web import Application, Request

from fleet_client.temporal.control_plane import ControlPlane
from front.access.access import AccessControl
from front.access.access_file import AccessRules
from front.page.accepting import prefers_html
from front.page.files import FOLDER
from front.serving.app import Front
from front.store.projection import Projection
from tests.front.front_under_test import ACCESS

Client = TestClient[Request, Application]
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
SETTINGS = {"temporalUi": "https://temporal.example", "temporalNamespace": "fleet"}
FILES = sorted(path.name for path in FOLDER.iterdir())
STYLE = (FOLDER / "page.css").read_text()


@asynccontextmanager
async def served(rules: AccessRules | None = None) -> AsyncIterator[Client]:
    front = Front(
        cast("ControlPlane", None), Projection(), AccessControl(rules), SETTINGS
    )
    async with TestClient(TestServer(front.app())) as client:
        yield client


@pytest.fixture
def rules(tmp_path: Path) -> AccessRules:
    file = tmp_path / "access.yaml"
    file.write_text(ACCESS.format(admin="a" * 64, alice="b" * 64, bob="c" * 64))
    return AccessRules(file)


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("TEXT/HTML;charset=utf-8", True),
        ("*/*, text/html;q=0.9", False),
        ("application/json, text/html", False),
        ("text/html;q=0.5, application/json", False),
        ("text/html;q=0", False),
        ("text/html;q=x, */*;q=0.1", False),
        ("application/json", False),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_only_clients_that_prefer_html_get_the_page(accept: str, page: bool) -> None:
    assert prefers_html(accept) is page


async def test_the_page_is_served_to_browsers_and_the_list_of_paths_to_programs() -> (
    None
):
    async with served() as client:
        for accept in (BROWSER, "*/*", "application/json"):
            async with client.get("/", headers={"Accept": accept}) as answer:
                expected = "text/html" if accept == BROWSER else "application/json"
                assert (answer.status, answer.content_type) == (200, expected)
        async with client.post("/", headers={"Accept": BROWSER}) as answer:
            assert answer.status == 404


async def test_the_page_needs_no_token_but_settings_and_data_do(
    rules: AccessRules,
) -> None:
    async with served(rules) as client:
        for path in ("/", *(f"/ui/{name}" for name in FILES if name != "index.html")):
            async with client.get(path, headers={"Accept": BROWSER}) as answer:
                assert answer.status == 200, path
        for path in (
            "/ui/settings.json",
            "/ui/state.json",
            "/apis/modelplane.ai/v1alpha1/modeldeployments",
            "/ui/none.js",
            "/ui/../main.py",
            "/ui/",
        ):
            async with client.get(path, headers={"Accept": BROWSER}) as answer:
                assert answer.status == 401, path
    async with served() as client, client.get("/ui/settings.json") as answer:
        assert await answer.json() == SETTINGS


async def test_every_file_has_its_type_and_the_headers_that_keep_others_out() -> None:
    types = {
        "html": "text/html",
        "js": "text/javascript",
        "css": "text/css",
        "svg": "image/svg+xml",
    }
    async with served() as client:
        for name in FILES:
            path = "/" if name == "index.html" else f"/ui/{name}"
            async with client.get(path, headers={"Accept": BROWSER}) as answer:
                assert answer.content_type == types[name.rpartition(".")[2]]
                assert await answer.read() == (FOLDER / name).read_bytes()
                headers = answer.headers
            policy = dict(
                part.split(" ", 1)
                for part in headers["Content-Security-Policy"].split("; ")
            )
            assert policy.pop("require-trusted-types-for") == "'script'"
            assert set(policy.values()) == {"'none'", "'self'"}
            assert {
                policy[name]
                for name in (
                    "default-src",
                    "base-uri",
                    "form-action",
                    "frame-ancestors",
                    "trusted-types",
                )
            } == {"'none'"}
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Vary"] == "Accept"
            # A browser keeps the file and revalidates it.
            assert headers["Cache-Control"] == "no-cache"
            async with client.get(
                path, headers={"Accept": BROWSER, "If-None-Match": headers["ETag"]}
            ) as answer:
                assert (answer.status, await answer.read()) == (304, b"")
                assert (
                    answer.headers["Content-Security-Policy"]
                    == headers["Content-Security-Policy"]
                )


def test_the_page_loads_nothing_from_other_servers_and_has_no_inline_code() -> None:
    for name in FILES:
        text = (FOLDER / name).read_text()
        assert set(re.findall(r"https?://[^\s\"'`]+", text)) <= {
            "http://www.w3.org/2000/svg"
        }, name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function",
            text,
        ), name
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)


# The pairs of text and background, and of shapes, which need less contrast.
GROUNDS = ("ground", "card")
TEXTS = [
    *((text, ground) for text in ("text", "quiet", "link") for ground in GROUNDS),
    *(
        (f"{sort}-text", f"{sort}-ground")
        for sort in ("ready", "waiting", "failed", "deleting")
    ),
]
NODES = ("used", "held", "free", "wasted", "draining")
SHAPES = [(shape, ground) for shape in ("line", "focus", *NODES) for ground in GROUNDS]


def colours(scheme: str) -> dict[str, str]:
    pattern = r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);"
    at = 1 if scheme == "light" else 2
    return {found[0]: found[at] for found in re.findall(pattern, STYLE)}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_shapes_have_enough_contrast(scheme: str) -> None:
    found = colours(scheme)
    weak = [
        (one, other, round(contrast(found[one], found[other]), 2))
        for pairs, least in ((TEXTS, 4.5), (SHAPES, 3.0))
        for one, other in pairs
        if contrast(found[one], found[other]) < least
    ]
    assert weak == []


def test_the_contrast_of_every_colour_is_checked() -> None:
    judged = {name for pair in (*TEXTS, *SHAPES) for name in pair}
    assert judged == set(colours("light")) == set(colours("dark"))
    rules = STYLE.split("* {", 1)[1]
    assert not re.search(
        r"#[0-9a-f]{3,8}\b(?! *\{)[^{]*;", rules.replace("#connection", "")
    )
    assert set(re.findall(r"var\(--([\w-]+)\)", rules)) <= judged | {"row"}
