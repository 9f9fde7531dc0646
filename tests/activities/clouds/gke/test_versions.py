"""Versions of GKE compared with the version of a manifest."""

import pytest

from activities.clouds.gke.versions import is_below, is_offered, next_step

BELOW = [
    ("1.34.6-gke.1200", "1.35", True),
    ("1.35.2-gke.1000", "1.35", False),
    ("1.36.1-gke.2000", "1.35", False),
    ("1.9.1-gke.1", "1.10", True),
    ("1.35.2-gke.1000", "1.35.2-gke.1000", False),
    ("1.35.2-gke.999", "1.35.2-gke.1000", True),
    ("1.35.4-gke.1", "1.35.2-gke.1000", False),
    ("1.35.1-gke.500", "1.35.2", True),
    ("1.35.2-gke.500", "1.35.2", False),
]


@pytest.mark.parametrize(("observed", "wanted", "below"), BELOW)
def test_lower_versions_are_upgraded(observed: str, wanted: str, below: bool) -> None:
    assert is_below(observed, wanted) is below


STEPS = [
    ("1.34.6-gke.1", "1.36", "1.35"),
    ("1.35.2-gke.1", "1.36", "1.36"),
    ("1.33.1-gke.1", "1.36.2-gke.1", "1.34"),
    ("1.35.1-gke.1", "1.36.2-gke.1", "1.36.2-gke.1"),
]


@pytest.mark.parametrize(("observed", "wanted", "step"), STEPS)
def test_one_minor_at_a_time(observed: str, wanted: str, step: str) -> None:
    assert next_step(observed, wanted) == step


@pytest.mark.parametrize(
    ("wanted", "offered"),
    [
        ("1.35", True),
        ("1.35.2-gke.1000", True),
        ("1.35.2", True),
        ("1.3", False),
        ("1.35.2-gke.1", False),
    ],
)
def test_an_alias_stands_for_every_version_of_its_minor(
    wanted: str, offered: bool
) -> None:
    assert is_offered(wanted, ["1.36.1-gke.5", "1.35.2-gke.1000"]) is offered
