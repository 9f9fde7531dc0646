"""Versions are read and ordered as Kubernetes does."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kubernetes.semver import SemanticVersion, parse_version
from tests.oracle.client import Oracle
from tests.random_cases import random_cases
from tests.scheduler.cel.devices import HOPPER

CHAIN = [
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
]

ORDERED = [
    *(("the chain of semver.org", left, right, -1) for left, right in pairwise(CHAIN)),
    ("numbers by value", "1.10.0", "1.9.0", 1),
    ("numbers below words", "1.0.0-1", "1.0.0-a", -1),
    ("words by ASCII", "1.0.0-A", "1.0.0-a", -1),
    ("a longer word above its start", "1.0.0-a-b", "1.0.0-a", 1),
    ("build metadata decides nothing", "1.0.0+a", "1.0.0+b", 0),
]

STRICT_INVALID = [
    *(
        ("wrong form", text)
        for text in (
            "1",
            "1.1",
            "v1.0.0",
            "01.01.01",
            " 1.0.0",
            "1.0.0 ",
            "1. 0.0",
            "1.2.3.4",
            "",
            "hello",
            "-1.0.0",
            "1.2.3-01",
            "1.2.3-a..b",
        )
    ),
    *(("empty identifiers", text) for text in ("1.2.3-", "1.2.3+", "1.2.3-+b")),
    *(
        ("beyond 64 bits", text)
        for text in ("18446744073709551616.0.0", "1.2.3-99999999999999999999")
    ),
    ("a short version", "9.0"),
]

STRICT_VALID = [
    *(
        ("identifiers", text)
        for text in ("1.2.3-beta.1+build.1", "1.2.3-0a", "1.2.3+01")
    ),
    ("64 bits", "18446744073709551615.0.0"),
]

NORMALISED = {
    "v1": "1.0.0",
    "1.1": "1.1.0",
    "v01.01": "1.1.0",
    "01.01.01": "1.1.1",
    "1.02.003": "1.2.3",
    "00.0.0": "0.0.0",
    "1.2.3-rc1": "1.2.3-rc1",
}

NOT_NORMALISABLE = [
    "V1",
    "vv1",
    "1.2-rc1",
    "1.2+b",
    "1..2",
    ".1",
    " 1.0.0",
    "",
    "1.02.003-rc.01",
]


@pytest.mark.parametrize(
    ("story", "left", "right", "order"),
    ORDERED,
    ids=[f"{story}: {left} {right}" for story, left, right, _ in ORDERED],
)
def test_precedence_is_that_of_kubernetes(
    story: str, left: str, right: str, order: int, oracle: Oracle
) -> None:
    a, b = parse_version(left), parse_version(right)
    assert ((a > b) - (a < b), a == b) == (order, order == 0), story
    assert oracle.version(left, right)["order"] == order


def test_equal_precedence_is_equal_and_hashes_alike() -> None:
    assert parse_version("1.0.0+a") == parse_version("1.0.0+b")
    assert len({parse_version("1.0.0+a"), parse_version("1.0.0+b")}) == 1


@pytest.mark.parametrize(
    ("story", "text"),
    STRICT_INVALID,
    ids=[f"{story} {text!r}" for story, text in STRICT_INVALID],
)
def test_a_text_that_is_not_a_strict_version_is_rejected(
    story: str, text: str, oracle: Oracle
) -> None:
    with pytest.raises(ValueError, match="not a semantic version"):
        parse_version(text)
    assert oracle.version(text).get("error"), story


@pytest.mark.parametrize(
    ("story", "text"),
    STRICT_VALID,
    ids=[f"{story} {text!r}" for story, text in STRICT_VALID],
)
def test_a_strict_version_keeps_its_spelling(
    story: str, text: str, oracle: Oracle
) -> None:
    assert str(parse_version(text)) == text == oracle.version(text)["type"], story


@pytest.mark.parametrize(
    ("text", "strict"),
    NORMALISED.items(),
    ids=[str(text) for text in NORMALISED],
)
def test_a_lax_version_is_normalised(text: str, strict: str, oracle: Oracle) -> None:
    assert str(parse_version(text, normalise=True)) == strict
    assert _normalises(oracle, text)


@pytest.mark.parametrize(
    "text", NOT_NORMALISABLE, ids=[repr(text) for text in NOT_NORMALISABLE]
)
def test_some_texts_are_invalid_even_when_normalised(text: str, oracle: Oracle) -> None:
    with pytest.raises(ValueError, match="not a semantic version"):
        parse_version(text, normalise=True)
    assert not _normalises(oracle, text)


# Without the real code, and the texts of errors


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [row[1:] for row in ORDERED],
    ids=[f"{row[1]} {row[2]}" for row in ORDERED],
)
def test_precedence_is_the_expected_one(left: str, right: str, order: int) -> None:
    a, b = parse_version(left), parse_version(right)
    assert ((a > b) - (a < b), a == b) == (order, order == 0)


@pytest.mark.parametrize("text", [text for _, text in STRICT_VALID])
def test_a_version_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_version(text)) == text


@pytest.mark.parametrize(("text", "strict"), NORMALISED.items(), ids=NORMALISED)
def test_a_lax_version_is_written_strictly(text: str, strict: str) -> None:
    assert str(parse_version(text, normalise=True)) == strict


NO_NUMBER = "is not a plain number without leading zeros"


@pytest.mark.parametrize(
    ("text", "normalise", "problem"),
    [
        ("1.2.03", False, f"its patch '03' {NO_NUMBER}"),
        ("x.2.3", False, f"its major 'x' {NO_NUMBER}"),
        ("18446744073709551616.0.0", False, "its major does not fit 64 bits"),
        ("1.2.3-a..b", False, "its pre-release has an empty identifier"),
        (
            "1.2.3+a_b",
            False,
            "its build metadata identifier 'a_b' may hold only letters, digits and '-'",
        ),
        ("1.2.3-01", False, f"its pre-release number '01' {NO_NUMBER}"),
        ("1.2-rc1", True, "a short version may not carry a pre-release or build"),
    ],
)
def test_the_error_names_the_invalid_part_of_a_version(
    text: str, normalise: bool, problem: str
) -> None:
    with pytest.raises(ValueError, match="is not a semantic version") as caught:
        parse_version(text, normalise=normalise)
    assert str(caught.value) == f"{text!r} is not a semantic version: {problem}"


@pytest.mark.parametrize(
    ("text", "normalise"),
    [
        *((text, False) for _, text in STRICT_INVALID),
        *((text, True) for text in NOT_NORMALISABLE),
    ],
)
def test_an_invalid_version_is_rejected(text: str, normalise: bool) -> None:
    with pytest.raises(ValueError, match="not a semantic version"):
        parse_version(text, normalise=normalise)


def _normalises(oracle: Oracle, text: str) -> bool:
    [outcome] = oracle.select(f"isSemver({json.dumps(text)}, true)", [HOPPER])[
        "devices"
    ]
    return bool(outcome["matched"])


PARTS = st.sampled_from(
    [
        *"0123456789",
        "10",
        "00",
        "01",
        "18446744073709551615",
        "18446744073709551616",
        "",
        "a",
        "1a",
        "-1",
        "٣",
    ]
)
IDENTIFIERS = st.sampled_from(
    ["alpha", "1", "01", "0", "a-b", "-", "", "99999999999999999999", "1a", "A", "é"]
)


@st.composite
def version_texts(draw: st.DrawFn) -> str:
    """Return a text that is a version, or nearly one."""
    text = draw(st.sampled_from(["", "", "v", " "])) + ".".join(
        draw(st.lists(PARTS, min_size=1, max_size=4))
    )
    for mark in "-+":
        identifiers = draw(st.lists(IDENTIFIERS, max_size=3))
        text += mark + ".".join(identifiers) if identifiers else ""
    return text


@random_cases(1500)
@given(left=version_texts(), right=version_texts())
def test_any_text_is_read_and_ordered_as_kubernetes_does(
    left: str, right: str, oracle: Oracle
) -> None:
    read = {text: _read(text) for text in (left, right)}
    for text, version in read.items():
        assert (version is None) == bool(oracle.version(text).get("error")), text
        assert (_read(text, normalise=True) is not None) == _normalises(oracle, text), (
            text
        )
    a, b = read[left], read[right]
    if a is not None and b is not None:
        assert (a > b) - (a < b) == oracle.version(left, right)["order"]


def _read(text: str, *, normalise: bool = False) -> SemanticVersion | None:
    try:
        return parse_version(text, normalise=normalise)
    except ValueError:
        return None
