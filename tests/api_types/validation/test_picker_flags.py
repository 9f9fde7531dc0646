"""The annotation with extra flags of an endpoint picker."""

import pytest

from api_types.validation.picker_flags import parse_picker_flags
from tests.api_types.builders import a_deployment, merged, problems

FLAGS = [
    ("nothing", "", {}),
    ("one flag", "v=5", {"v": "5"}),
    (
        "several, as people write them",
        "--v=5, model-server-metrics-port=9000\n",
        {"v": "5", "model-server-metrics-port": "9000"},
    ),
    ("a flag that is only named is on", "tracing", {"tracing": "true"}),
    ("a value may hold an equals sign", "metric=a=b", {"metric": "a=b"}),
    ("a value may be empty", "metric=", {"metric": ""}),
]


@pytest.mark.parametrize(
    ("text", "flags"), [row[1:] for row in FLAGS], ids=[row[0] for row in FLAGS]
)
def test_flags_are_read_as_pairs(text: str, flags: dict[str, str]) -> None:
    assert parse_picker_flags(text) == flags


def test_every_bad_name_is_reported() -> None:
    with pytest.raises(ValueError, match="'Bad', 'x;rm'"):
        parse_picker_flags("v=5,Bad=1,x;rm")


def test_flags_of_the_platform_are_rejected_on_a_deployment() -> None:
    key = "modelplane.ai/epp-extra-flags"

    def said(text: str) -> list[str]:
        return problems(
            merged(a_deployment(), {"metadata": {"annotations": {key: text}}})
        )

    refused = [
        f'metadata.annotations["{key}"]: flag --{name} is set by the platform; '
        f"remove it from {key}"
        for name in ("config-text", "metrics-endpoint-auth")
    ]
    assert said("--metrics-endpoint-auth=false, v=4\nconfig-text=x") == refused
    assert (
        said(
            "total-queued-requests-metric=a,lora-info-metric=b,metrics-staleness-threshold=5s,v=4"
        )
        == []
    )
    assert said("Bad=1") == []  # the deployment's events report it
