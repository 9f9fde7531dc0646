"""A quantity has the same value as in Kubernetes."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_types.text.quantity import (
    NANO_PER_UNIT,
    DeclinedQuantity,
    parse_quantity,
    times,
)
from tests.oracle.client import Oracle
from tests.random_cases import random_cases

UNIT = NANO_PER_UNIT
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Case:
    """Texts and their values in nano-units."""

    story: str
    values: dict[str, int]


VALID = [
    Case(
        "plain numbers with sign, dot and leading zeros",
        {
            "0": 0,
            "5": 5 * UNIT,
            "+5": 5 * UNIT,
            "-5": -5 * UNIT,
            "5.": 5 * UNIT,
            ".5": UNIT // 2,
            "+.5Gi": 536870912 * UNIT,
            "00012": 12 * UNIT,
        },
    ),
    Case(
        "binary suffixes",
        {
            f"1{name}": 2 ** (10 * power) * UNIT
            for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
        },
    ),
    Case(
        "decimal suffixes",
        {"1n": 1, "1u": 1000, "1m": 10**6}
        | {f"1{name}": 10 ** (9 + 3 * power) for power, name in enumerate("kMGTPE", 1)},
    ),
    Case(
        "fractions of binary units",
        {"1.5Gi": 1610612736 * UNIT, "0.0001Ki": 102400000, "0.5Ki": 512 * UNIT},
    ),
    Case(
        "exponents",
        {
            "1e3": 1000 * UNIT,
            "1E3": 1000 * UNIT,
            "1e+3": 1000 * UNIT,
            "1e-3": 10**6,
            "1.e3": 1000 * UNIT,
            ".5e1": 5 * UNIT,
        }
        | {"1e09": 10**18, "1E+2": 100 * UNIT},
    ),
    Case(
        "E alone is exa, E with a number an exponent",
        {"1E": 10**27, "1E3": 10**12},
    ),
    Case(
        "anything smaller than a nano-unit is rounded away from zero",
        {
            "0.0000000004": 1,
            "0.000000001": 1,
            "-0.0000000004": -1,
            "0.1n": 1,
            "1e-400": 1,
        },
    ),
    Case(
        "different spellings of one value",
        {
            "200M": 2 * 10**17,
            "0.2G": 2 * 10**17,
            "1Gi": 1024 * 2**20 * UNIT,
            "1024Mi": 2**30 * UNIT,
            "-0": 0,
        },
    ),
    Case(
        "decimal and binary mega differ",
        {"50M": 50 * 10**15, "50Mi": 50 * 2**20 * UNIT},
    ),
    Case(
        "binary suffixes saturate, sign kept",
        {
            "8Ei": INT64_MAX * UNIT,
            "10Ei": INT64_MAX * UNIT,
            "8192Pi": INT64_MAX * UNIT,
            "-10Ei": -INT64_MAX * UNIT,
            "7Ei": 7 * 2**60 * UNIT,
        },
    ),
    Case(
        "decimal forms do not saturate",
        {
            "256E": 256 * 10**27,
            "10E": 10**28,
            "1000E": 10**30,
            "9" * 38: (10**38 - 1) * UNIT,
        },
    ),
    Case(
        "every digit counts",
        {
            "1.0000000000000000000000000000001Gi": 1073741824000000001,
            "1Gi": 1073741824 * UNIT,
        },
    ),
    Case("large exponents are exact", {"1e400": 10**409}),
]

INVALID = [
    *(
        ("no such suffix", text)
        for text in (
            "1K",
            "1ki",
            "1p",
            "1Z",
            "1Zi",
            "1GI",
            "1gi",
            "1GB",
            "10Mo",
            "10Mm",
            "1Eim",
            "1m1",
            "1Mi1",
        )
    ),
    *(
        ("not a number", text)
        for text in (
            "",
            " 1Gi",
            "1Gi ",
            "1 Gi",
            "1,3G",
            "1_000",
            "0x10",
            "NaN",
            "Inf",
            "1.2.3",
            "--1",
            "+-1",
            "Three",
        )
    ),
    *(("a broken exponent", text) for text in ("1e", "1e+", "1e1.5", "1e3Gi")),
    *(
        ("text that only looks like digits or an end", text)
        for text in ("5\n", "5\nGi", "٣Gi")
    ),
]

# Kubernetes accepts these texts; the parser rejects them on purpose, for the given
# reason.
DECLINED = [
    *(
        ("a suffix or sign alone: zero to Kubernetes, a typo to people", text)
        for text in ("Mi", "k", ".", "-", "e3")
    ),
    ("a number too long for a manifest", "9" * 5000),
    ("an exponent whose digits alone would be a denial of service", "1e5000"),
]


@pytest.mark.parametrize("case", VALID, ids=lambda case: case.story)
def test_text_stands_for_the_same_number_as_in_kubernetes(
    case: Case, oracle: Oracle
) -> None:
    assert {text: parse_quantity(text) for text in case.values} == case.values
    assert {
        text: int(oracle.quantity(text)["nano"]) for text in case.values
    } == case.values


@pytest.mark.parametrize(
    ("story", "text"), INVALID, ids=[f"{story} {text!r}" for story, text in INVALID]
)
def test_text_that_kubernetes_rejects_is_rejected(
    story: str, text: str, oracle: Oracle
) -> None:
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        parse_quantity(text)
    assert oracle.quantity(text).get("error"), (
        f"Kubernetes reads {text!r}, so {story!r} is wrong"
    )


@pytest.mark.parametrize(
    ("story", "text"),
    DECLINED,
    ids=[f"{story} {text[:8]!r}" for story, text in DECLINED],
)
def test_text_that_only_kubernetes_accepts_is_declined(
    story: str, text: str, oracle: Oracle
) -> None:
    with pytest.raises(DeclinedQuantity):
        parse_quantity(text)
    assert not oracle.quantity(text).get("error"), (
        f"Kubernetes refuses {text[:8]!r} too, so {story!r} is no difference"
    )


def test_an_endless_exponent_is_refused_at_once() -> None:
    """The parser checks the exponent before any computation."""
    with pytest.raises(ValueError, match="exponent"):
        parse_quantity("1e99999999999")


def test_at_most_4096_characters_are_read() -> None:
    assert parse_quantity("0" * 4096) == 0
    with pytest.raises(DeclinedQuantity):
        parse_quantity("0" * 4097)


def test_an_error_suggests_the_probable_meaning() -> None:
    with pytest.raises(ValueError, match="did you mean 80G or 80Gi"):
        parse_quantity("80GB")


NUMBERS = st.from_regex(r"[+-]?([0-9]{0,20}\.?[0-9]{0,20})", fullmatch=True)
SUFFIXES = st.sampled_from(
    [
        "",
        *"numkMGTPE",
        "Ki",
        "Mi",
        "Gi",
        "Ti",
        "Pi",
        "Ei",
        "e3",
        "E-7",
        "e+012",
        "E40",
        "e",
        "K",
        "i",
        "gi",
        " ",
        "\n",
    ]
)


@random_cases(1500)
@given(number=NUMBERS, suffix=SUFFIXES)
def test_any_text_is_read_as_kubernetes_reads_it(
    number: str, suffix: str, oracle: Oracle
) -> None:
    text = number + suffix
    in_kubernetes = oracle.quantity(text)
    try:
        nano = parse_quantity(text)
    except DeclinedQuantity:
        return
    except ValueError:
        assert in_kubernetes.get("error"), (
            f"Kubernetes reads {text!r} as {in_kubernetes}"
        )
    else:
        assert str(nano) == in_kubernetes.get("nano"), text


@pytest.mark.parametrize(
    ("text", "product"),
    [
        ("4", "32"),
        ("500m", "4000m"),
        ("1.5Gi", "12.0Gi"),
        (".25", "2.00"),
        ("2e3", "16e3"),
        ("-1.05", "-8.40"),
    ],
)
def test_a_quantity_is_multiplied_exactly(text: str, product: str) -> None:
    assert times(text, 8) == product
    assert parse_quantity(times(text, 8)) == 8 * parse_quantity(text)


def test_a_text_that_is_no_quantity_is_not_multiplied() -> None:
    with pytest.raises(ValueError, match="lots"):
        times("lots", 2)
