import pytest

from fleet_client.errors import Refused
from fleet_client.refs.selectors import parse_selector

LABELS = {"app": "chat", "tier": "gold", "modelplane.ai/region": "eu"}

CASES = [
    ("no selector takes everything", None, True),
    ("an empty selector takes everything", "", True),
    ("equal", "app=chat", True),
    ("equal, two signs", "app==chat", True),
    ("equal, other value", "app=search", False),
    ("unequal", "tier!=silver", True),
    ("unequal takes what lacks the key", "team!=a", True),
    ("in", "tier in (gold, silver)", True),
    ("in, not there", "tier in (silver)", False),
    ("notin", "tier notin (silver,bronze)", True),
    ("notin takes what lacks the key", "team notin (a)", True),
    ("present", "modelplane.ai/region", True),
    ("absent", "!team", True),
    ("absent, but there", "!app", False),
    ("all terms must hold", "app=chat,tier=silver", False),
    ("a comma in brackets separates values", "app=chat,tier in (gold,silver)", True),
    ("an empty value is a value", "app=", False),
]


@pytest.mark.parametrize(
    ("story", "text", "want"), CASES, ids=[row[0] for row in CASES]
)
def test_label_selectors_work_as_in_kubectl(
    story: str, text: str | None, want: bool
) -> None:
    assert parse_selector(text)(LABELS) is want, story


@pytest.mark.parametrize(
    "text", ["app=chat,", "tier in gold", "a b", "=x", "app in (a", "!!x"]
)
def test_an_invalid_selector_is_rejected_and_its_bad_part_named(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_selector(text)
    assert "is not a label selector" in refused.value.message
    assert refused.value.next_step
