"""A replica count has the same bounds through `scale` as in the spec."""

from typing import Any

import pytest

from api_types.validation.manifests import InvalidManifest, admit_scale

WRONG: list[tuple[Any, str]] = [
    (-1, "must be between 0 and 1000, got -1"),
    (1001, "must be between 0 and 1000, got 1001"),
    ("2", 'must be an integer, got the string "2"'),
    (2.0, "must be an integer, got 2.0"),
    (True, "must be an integer, got true"),
    (None, "must be an integer, got nothing"),
]


@pytest.mark.parametrize("replicas", [0, 1, 1000])
def test_a_count_within_its_bounds_is_returned(replicas: int) -> None:
    assert admit_scale("ml", "qwen", replicas) == replicas


@pytest.mark.parametrize(
    ("replicas", "want"), WRONG, ids=[f"{replicas!r}" for replicas, _ in WRONG]
)
def test_a_count_out_of_bounds_is_rejected_with_the_error_of_the_spec(
    replicas: Any, want: str
) -> None:
    with pytest.raises(InvalidManifest) as caught:
        admit_scale("ml", "qwen", replicas)
    assert str(caught.value) == f"ModelDeployment ml/qwen: spec.replicas: {want}"
