"""Cache sources: no part of a reference can escape its place in a URL or path."""

from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.model_sources import (
    ImageReference,
    is_endpoint,
    is_repository_id,
    is_revision,
    read_image,
)
from tests.random_cases import random_cases

DIGEST = "sha256:" + "ab" * 32
READ = [
    (
        "registry.example/models/qwen:1.0",
        ImageReference("registry.example", "models/qwen", "1.0", ""),
    ),
    (
        "registry.example:5000/models/qwen",
        ImageReference("registry.example:5000", "models/qwen", "", ""),
    ),
    (
        "registry.example:65535/qwen",
        ImageReference("registry.example:65535", "qwen", "", ""),
    ),
    ("localhost/qwen:1", ImageReference("localhost", "qwen", "1", "")),
    (
        "Registry.Example/a__b/c-d.e_f--g:V1.0-rc_1",
        ImageReference("Registry.Example", "a__b/c-d.e_f--g", "V1.0-rc_1", ""),
    ),
    (
        f"registry.example/qwen@{DIGEST}",
        ImageReference("registry.example", "qwen", "", DIGEST),
    ),
    (
        f"registry.example/qwen:1.0@{DIGEST}",
        ImageReference("registry.example", "qwen", "1.0", DIGEST),
    ),
    ("r/x:1", ImageReference("", "r/x", "1", "")),
    ("qwen", ImageReference("", "qwen", "", "")),
]


@pytest.mark.parametrize(("text", "want"), READ, ids=[case[0] for case in READ])
def test_a_reference_is_read_as_clients_of_registries_read_it(
    text: str, want: ImageReference
) -> None:
    assert read_image(text) == want


REFUSED = {
    "": "repository",
    "registry.example/../internal/x:1": "repository",
    "registry.example/models/..:1": "repository",
    "registry.example/models//qwen": "repository",
    "registry.example/models/": "repository",
    "/models/qwen": "repository",
    "registry.example/Models/qwen": "repository",
    "registry.example/models%2f..%2fqwen": "repository",
    "registry.example/models/qwen?x=1": "repository",
    "registry.example/models/qwen#x": "repository",
    "registry.example/models/qwen\n": "repository",
    "registry.example/models/qw en": "repository",
    "registry.example/a..b/qwen": "repository",
    "registry.example/-x/qwen": "repository",
    "registry.example/" + "a" * 250: "255 characters",
    "user@registry.example/qwen": "digest",
    "user:pass@registry.example/qwen": "digest",
    f"registry.example/qwen@{DIGEST}@{DIGEST}": "digest",
    "registry.example/qwen@sha256:12": "digest",
    f"registry.example/qwen@{DIGEST.upper()}": "digest",
    "registry.example/qwen:": "tag",
    "registry.example/qwen:-x": "tag",
    "registry.example/qwen:1:2": "tag",
    "registry.example/qwen:" + "a" * 129: "tag",
    "registry.example:80:90/qwen": "host",
    "registry..example/qwen": "host",
    "registry.example:port/qwen": "host",
    "registry.example:99999/qwen": "port",
    "registry.example:65536/qwen": "port",
    "registry.example:0/qwen": "port",
    "127\u30020\u30020\u30021.x/qwen": "host",
    "registry.exam ple/qwen": "host",
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_invalid_reference_is_rejected_with_its_invalid_part(
    text: str,
) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        read_image(text)


@pytest.mark.parametrize("port", [":1", ":65535", ""])
def test_an_endpoint_may_have_a_port(port: str) -> None:
    assert is_endpoint(f"https://minio.example{port}")


@pytest.mark.parametrize("port", [":0", ":65536", ":99999", ":", ":123456"])
def test_an_endpoint_has_no_port_beyond_those_of_tcp(port: str) -> None:
    assert not is_endpoint(f"https://minio.example{port}")


PIECES = st.sampled_from(
    [
        "a",
        "Q",
        "9",
        ".",
        "..",
        "_",
        "-",
        "/",
        ":",
        "@",
        "%",
        "?",
        "#",
        "\\",
        "\n",
        "\u3002",
        "registry.example",
        DIGEST,
    ]
)


@random_cases(200)
@given(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=40)))
def test_a_parsed_reference_stays_in_its_part_of_a_url(text: str) -> None:
    try:
        found = read_image(text)
    except ValueError:
        return
    host, tag = found.host or "registry.example", found.tag or "latest"
    url = f"https://{host}/v2/{found.repository}/manifests/{tag}"
    parts = urlsplit(urljoin(url, ""))
    assert parts.geturl() == url
    assert (parts.netloc, parts.query, parts.fragment) == (
        found.host or "registry.example",
        "",
        "",
    )
    assert parts.path.startswith("/v2/")
    assert not {"", ".", ".."} & set(parts.path.split("/")[1:])


@pytest.mark.parametrize("text", ["acme/tiny", "gpt2", "acme_1/tiny.v2-x", "_x/y"])
def test_a_repository_of_the_hub(text: str) -> None:
    assert is_repository_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "../x",
        "x/..",
        "a..b/x",
        "./x",
        "a/b/c",
        "a/",
        "/a",
        "-x",
        "a b",
        "a?b",
        "a\n",
    ],
)
def test_text_that_is_not_a_repository_of_the_hub(text: str) -> None:
    assert not is_repository_id(text)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("main", True),
        ("refs/pr/12", True),
        ("-f", False),
        ("a/../b", False),
        ("a?b", False),
    ],
)
def test_a_revision(text: str, *, valid: bool) -> None:
    assert is_revision(text) is valid
