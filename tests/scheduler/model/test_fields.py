"""Values of reports: bounds of whole numbers, and the field that an error names."""

from collections.abc import Callable

import pytest

from scheduler.model.fields import (
    WHOLE_MAX,
    WHOLE_MIN,
    FieldError,
    JsonFields,
    inside,
    is_whole,
    wrong,
)


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (-(2**63) - 1, False),
        (-(2**63), True),
        (-1, True),
        (0, True),
        (2**63 - 1, True),
        (2**63, False),
        (True, False),
        (1.0, False),
        ("1", False),
        (None, False),
    ],
)
def test_a_whole_number_has_64_bits(value: object, whole: bool) -> None:
    assert is_whole(value) is whole


READ = JsonFields(
    {
        "text": "a",
        "empty": "",
        "null": None,
        "low": WHOLE_MIN,
        "high": WHOLE_MAX,
        "zero": 0,
        "yes": True,
        "no": False,
        "object": {"a": "b"},
        "objects": [{"a": "b"}, None],
        "texts": ("a", "b"),
    },
    "Pool p: ",
)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda: READ.text("text", "x"), "a"),
        (lambda: READ.text("empty", "x"), ""),
        (lambda: READ.text("null", "x"), "x"),
        (lambda: READ.text("absent"), ""),
        (lambda: READ.name("text"), "a"),
        (lambda: READ.whole("low"), WHOLE_MIN),
        (lambda: READ.whole("high"), WHOLE_MAX),
        (lambda: READ.whole("zero", 7), 0),
        (lambda: READ.whole("null", 7), 7),
        (lambda: READ.whole("absent"), 0),
        (lambda: READ.flag("yes"), True),
        (lambda: READ.flag("no"), False),
        (lambda: READ.flag("null"), False),
        (lambda: READ.object("object").tree, {"a": "b"}),
        (lambda: READ.object("null").tree, {}),
        (lambda: [(each.at, each.tree) for each in READ.objects("objects")],
         [("Pool p: objects[0]", {"a": "b"}), ("Pool p: objects[1]", {})]),
        (lambda: READ.objects("absent"), []),
        (lambda: READ.texts("texts"), ("a", "b")),
        (lambda: READ.texts("null"), ()),
        (lambda: READ.text_map("object"), {"a": "b"}),
        (lambda: ("text" in READ, "null" in READ, "absent" in READ), (True, False, False)),
    ],
)  # fmt: skip
def test_absent_and_null_give_the_default(
    read: Callable[[], object], value: object
) -> None:
    assert read() == value


WRONG = JsonFields(
    {
        "number": 1,
        "text": "a",
        "empty": "",
        "low": WHOLE_MIN - 1,
        "high": WHOLE_MAX + 1,
        "texts": ["a", 2],
        "object": {"a": 1},
        "objects": [{}, 3],
    },
    "status",
)


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: WRONG.text("number"), "status.number: must be text, got 1"),
        (lambda: WRONG.name("empty"), "status.empty: is required"),
        (lambda: WRONG.name("absent"), "status.absent: is required"),
        (lambda: WRONG.whole("text"), "status.text: must be a whole number of 64 bits, got 'a'"),
        (lambda: WRONG.whole("low"),
         "status.low: must be a whole number of 64 bits, got -9223372036854775809"),
        (lambda: WRONG.whole("high"),
         "status.high: must be a whole number of 64 bits, got 9223372036854775808"),
        (lambda: WRONG.flag("number"), "status.number: must be true or false, got 1"),
        (lambda: WRONG.object("number"), "status.number: must be an object, got 1"),
        (lambda: WRONG.objects("text"), "status.text: must be a list, got 'a'"),
        (lambda: WRONG.objects("objects"), "status.objects[1]: must be an object, got 3"),
        (lambda: WRONG.texts("texts"), "status.texts[1]: must be text, got 2"),
        (lambda: WRONG.text_map("object"), "status.object.a: must be text, got 1"),
        (lambda: JsonFields([], ""), "must be an object, got []"),
        (lambda: JsonFields({"a": 1}, "").text("a"), "a: must be text, got 1"),
        (lambda: JsonFields({"a": 1}, "Pool p: ").text("a"), "Pool p: a: must be text, got 1"),
    ],
)  # fmt: skip
def test_an_error_names_the_field(read: Callable[[], object], says: str) -> None:
    with pytest.raises(FieldError) as raised:
        read()
    assert str(raised.value) == says


@pytest.mark.parametrize(
    ("length", "shown"),
    [(78, "'" + "x" * 78 + "'"), (79, "'" + "x" * 79 + "…")],
    ids=["80 characters with the quotes", "81 characters"],
)
def test_a_long_value_is_cut_in_an_error(length: int, shown: str) -> None:
    assert wrong("a", "text", "x" * length).problem == f"must be text, got {shown}"


@pytest.mark.parametrize(
    ("error", "at"),
    [
        (FieldError("paused", "is required"), "rollout.paused"),
        (FieldError("[0].name", "is required"), "rollout[0].name"),
        (FieldError("", "is required"), "rollout"),
        (ValueError("is required"), "rollout"),
    ],
)
def test_an_error_path_starts_with_the_outer_field(error: ValueError, at: str) -> None:
    assert str(inside("rollout", error)) == f"{at}: is required"
