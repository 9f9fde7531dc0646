"""The annotation that gives an endpoint picker more flags."""

import pytest

from api_types.validation.picker_flags import parse_picker_flags

FLAGS = [
    ("nothing", "", {}),
    ("one flag", "v=5", {"v": "5"}),
    ("several, as people write them", "--v=5, model-server-metrics-port=9000\n", {"v": "5", "model-server-metrics-port": "9000"}),
    ("a flag that is only named is on", "tracing", {"tracing": "true"}),
    ("a value may hold an equals sign", "metric=a=b", {"metric": "a=b"}),
    ("a value may be empty", "metric=", {"metric": ""}),
]


@pytest.mark.parametrize(("text", "flags"), [row[1:] for row in FLAGS], ids=[row[0] for row in FLAGS])
def test_flags_are_read_as_pairs(text: str, flags: dict[str, str]) -> None:
    assert parse_picker_flags(text) == flags


def test_every_bad_name_is_reported() -> None:
    with pytest.raises(ValueError, match="'Bad', 'x;rm'"):
        parse_picker_flags("v=5,Bad=1,x;rm")
