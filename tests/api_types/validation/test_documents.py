"""YAML and JSON from users."""

import json
from contextlib import suppress
from typing import Any

import pytest

from api_types.text import reader
from api_types.validation import documents
from api_types.validation.manifests import (
    InvalidManifest,
    Problem,
    admit,
    admit_all,
    parse,
)
from fleet_client.checks import CHECKS
from tests.api_types.builders import a_cluster, merged
from tests.environment.effort import effort_below


def value(text: str) -> Any:
    """Read one YAML value."""
    (document,) = parse(f"v: {text}\n", "a.yaml")
    return document["v"]


SCALARS: list[tuple[str, Any]] = [
    ("true", True),
    ("False", False),
    ("yes", "yes"),
    ("no", "no"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("2026-11-21", "2026-11-21"),
    ("12:30:45", "12:30:45"),
    ("1_000", "1_000"),
    ("0b11", "0b11"),
    ("0o17", 15),
    ("0x1F", 31),
    ("017", 17),
    ("-3", -3),
    ("1e3", 1000.0),
    ("1.35", 1.35),
    ("null", None),
    ("~", None),
    ("''", ""),
    ('"1"', "1"),
    ("!!str 1", "1"),
    ("'true'", "true"),
    ("=", "="),
    ("9" * 100, "9" * 100),
]


@pytest.mark.parametrize(
    ("text", "want"), SCALARS, ids=[text[:12] for text, _ in SCALARS]
)
def test_a_scalar_has_the_type_of_the_core_schema(text: str, want: Any) -> None:
    got = value(text)
    assert got == want
    assert isinstance(got, type(want))


@pytest.mark.parametrize("text", ["1.30", "1.360", "1e1"])
def test_advice_to_quote_a_number_shows_it_as_it_was_written(text: str) -> None:
    for source in (
        f"{{kubernetesVersion: {text}, region: a}}",
        f'{{"kubernetesVersion": {text}, "region": "a"}}',
    ):
        spec = f"spec: {{cluster: {{source: EKS, eks: {source}}}}}"
        (document,) = parse(
            "apiVersion: modelplane.ai/v1alpha1\nkind: "
            f"InferenceCluster\nmetadata: {{name: a}}\n{spec}",
            "a.yaml",
        )
        with pytest.raises(InvalidManifest) as caught:
            admit(document, CHECKS)
        assert (
            caught.value.problems[0].problem == f'must be a string; quote it: "{text}"'
        )


def test_a_file_holds_several_documents_and_empty_ones_count_for_nothing() -> None:
    documents = parse(
        "# first\nkind: A\n---\n---\n# only a comment\n---\nkind: B\n...\n---\nkind: C\n",
        "all.yaml",
    )
    assert [one["kind"] for one in documents] == ["A", "B", "C"]
    assert [(one.source, one.number, one.line) for one in documents] == [
        ("all.yaml", 1, 2),
        ("all.yaml", 4, 7),
        ("all.yaml", 5, 10),
    ]


def test_json_is_read_one_or_several_after_another() -> None:
    assert [
        dict(one) for one in parse('{"kind": "A", "n": 1}\n{"kind": "B"}', "a.json")
    ] == [{"kind": "A", "n": 1}, {"kind": "B"}]
    assert parse('{"kind": "A"}\n\n{"kind": "B"}', "a.json")[1].line == 3


def test_flow_style_yaml_that_begins_like_json_is_read_as_yaml() -> None:
    assert [dict(one) for one in parse("{kind: A, on: yes}", "a.yaml")] == [
        {"kind": "A", "on": "yes"}
    ]


def test_a_v1_list_counts_as_its_items() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {kind: A}\n- {kind: B}\n"
    assert [one["kind"] for one in parse(text, "a.yaml")] == ["A", "B"]


def test_anchors_and_merges_are_followed_and_own_keys_win() -> None:
    (document,) = parse(
        "base: &base {a: 1, b: 2}\nv:\n  <<: *base\n  b: 3\nw: *base\n", "a.yaml"
    )
    assert document["v"] == {"a": 1, "b": 3}
    assert document["w"] == {"a": 1, "b": 2}


HEAD = "apiVersion: modelplane.ai/v1alpha1\nkind: ModelCache\nmetadata: {name: x}\n"

ITEMS = "apiVersion: v1\nkind: List\nitems: [x]\n"

BAD = [
    (
        "a key given twice",
        "a: 1\nb: 2\na: 3\n",
        "bad.yaml document 1 line 3: a key is given twice: a",
    ),
    (
        "a key given twice in JSON",
        '{"a": 1,\n "a": 2}',
        "bad.yaml document 1 line 2: a key is given twice: a",
    ),
    (
        "an unknown alias",
        "a: *nowhere\n",
        "bad.yaml document 1 line 1: an alias without an anchor",
    ),
    (
        "a foreign tag",
        "a: 1\n---\nb: !!python/object:os.system x\n",
        "bad.yaml document 2 line 3: a tag that is not supported",
    ),
    (
        "binary data",
        "a: !!binary aGk=\n",
        "bad.yaml document 1 line 1: tag tag:yaml.org,2002:binary is not supported",
    ),
    (
        "a merge of a list of text",
        "a:\n  <<: [x]\n",
        "bad.yaml document 1 line 2: << merges objects only",
    ),
    (
        "brackets that do not close",
        "a: 1\n---\nb: [1, 2\n",
        "bad.yaml document 2 line ",
    ),
    ("a tab for indentation", "a:\n\t- b\n", "bad.yaml document 1 line 2: not YAML: "),
    (
        "a control character",
        "a: 1\nb: \x01\n",
        (
            "bad.yaml document 1 line 2: not YAML: unacceptable character #x01: "
            "control characters are not allowed"
        ),
    ),
    (
        "a control character after a text that is not ASCII",
        f"a: {'é' * 20}\nb: \x01\nc: 1\nd: 1\ne: 1\n",
        "bad.yaml document 1 line 2: not YAML: unacceptable character #x01: ",
    ),
    (
        "half of a surrogate pair that is not escaped",
        "a: 1\nb: \ud83d\n",
        "bad.yaml document 1 line 2: not YAML: unacceptable character #xd83d: ",
    ),
    (
        "a list at the top",
        "- a\n",
        "bad.yaml document 1 (line 1): must be an object with apiVersion and kind",
    ),
    (
        "text at the top",
        "a: 1\n---\nhello\n",
        "bad.yaml document 2 (line 3): must be an object with apiVersion and kind",
    ),
    (
        "a key that is not finite",
        ".nan: 1\n",
        "bad.yaml document 1 line 1: a key must be a string",
    ),
    (
        "a key of any length",
        f"{2**61}: 1\n",
        "bad.yaml document 1 line 1: a key must be a string",
    ),
    (
        "half of a surrogate pair",
        'a: 1\n---\na: "\\ud800"\n',
        "bad.yaml document 2 line 3: half of a surrogate pair",
    ),
    (
        "half of a surrogate pair in JSON",
        '{"a": "\\ud800x"}',
        "bad.yaml document 1 line 1: half of a surrogate pair",
    ),
    (
        "half of a surrogate pair as a key",
        '{"\\udfff": 1}',
        "bad.yaml document 1 line 1: half of a surrogate pair",
    ),
    (
        "a key that is a list",
        "? [a]\n: 1\n",
        "bad.yaml document 1 line 1: a key must be a string",
    ),
    (
        "a list of text as items",
        "apiVersion: v1\nkind: List\nitems: [x]\n",
        "bad.yaml document 1 (line 1): items: each item must be an object",
    ),
]


@pytest.mark.parametrize(
    ("text", "want"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_an_unreadable_text_is_rejected_with_file_document_and_line(
    text: str, want: str
) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse(text, "bad.yaml")
    assert str(caught.value).startswith(want)


def test_a_few_aliases_cannot_stand_for_gigabytes() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]"
        for level in range(1, 12)
    ]
    spec = "\n  ".join(["spec:", *lines])
    (document,) = parse(f"{HEAD}{spec}", "bomb.yaml")
    with pytest.raises(InvalidManifest, match="has more than 50000 values"):
        admit(document, CHECKS)


@pytest.mark.parametrize(
    "head",
    [
        "apiVersion: v1\nkind: Secret\n",
        "apiVersion: modelplane.ai/v1alpha1\nkind: ModelCache\n",
    ],
    ids=["Secret", "ModelCache"],
)
@pytest.mark.parametrize("field", ["name", "namespace"])
def test_aliases_in_the_identity_of_an_object_are_bounded_too(
    head: str, field: str
) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]"
        for level in range(1, 12)
    ]
    bomb = "\n  ".join(["spec:", *lines])
    documents = parse(
        f"{head}{bomb}\nmetadata: {{name: x, {field}: *a11}}\n".replace(
            "name: x, name", "name"
        ),
        "bomb.yaml",
    )
    with pytest.raises(InvalidManifest, match="has more than 50000 values"):
        admit_all(documents, CHECKS)


def test_an_alias_to_its_own_list_ends_as_an_error() -> None:
    (document,) = parse(f"{HEAD}spec: &s {{a: *s}}\n", "loop.yaml")
    with pytest.raises(InvalidManifest, match="is nested more than 64 levels deep"):
        admit(document, CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000],
    ids=["yaml", "json"],
)
def test_nesting_that_no_parser_survives_is_an_error_of_the_file(text: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse(text, "deep")
    assert (
        str(caught.value)
        == "deep document 1 line 1: is nested more than 64 levels deep"
    )


# Each text would take minutes or gigabytes if a step depended on the length of the text
# before it.
SLOW = [
    ("adjacent JSON documents", "{}" * 195_000),
    ("documents of JSON on lines", "{}\n" * 195_000),
    (
        "merges of one large object",
        "a: &a {"
        + ", ".join(f"k{n}: 1" for n in range(1500))
        + "}\n"
        + "".join(f"b{n}: {{<<: *a}}\n" for n in range(9000)),
    ),
    (
        "a merge of many",
        "a: &a {"
        + ", ".join(f"k{n}: 1" for n in range(1500))
        + "}\nb: {<<: ["
        + ", ".join(["*a"] * 40_000)
        + "]}\n",
    ),
    (
        "keys that collide",
        "{" + ", ".join(f"{n * (2**61 - 1)}: 1" for n in range(20_000)) + "}",
    ),
    ("brackets", "[" * 200_000),
    ("spaces before it", " " * 200_000 + "{"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [case[1] for case in SLOW], ids=[case[0] for case in SLOW]
)
def test_no_text_takes_longer_than_its_length(text: str) -> None:
    with effort_below(500), suppress(InvalidManifest):
        parse(text, "slow.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "{}" * 6,
        "--- {}\n" * 6,
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [{}] * 6}),
    ],
)
def test_documents_are_counted(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "DOCUMENTS_MAX", 6)
    assert len(parse(text, "many.yaml")) == 6
    monkeypatch.setattr(documents, "DOCUMENTS_MAX", 5)
    with pytest.raises(InvalidManifest) as caught:
        parse(text, "many.yaml")
    assert (
        str(caught.value)
        == "many.yaml: has more than 5 documents; put them in several files"
    )


def test_keys_from_merges_are_counted() -> None:
    text = (
        "a: &a {"
        + ", ".join(f"k{n}: 1" for n in range(1000))
        + "}\n"
        + "".join(f"b{n}: {{<<: *a}}\n" for n in range(51))
    )
    with pytest.raises(InvalidManifest, match="merges more than 50000 keys"):
        parse(text, "merge.yaml")


def test_two_escapes_of_json_may_be_one_character() -> None:
    assert [
        dict(one)
        for one in parse('{"a": "\\ud83d\\ude00", "b\\ud83d\\ude00": 1}', "a.json")
    ] == [{"a": "😀", "b😀": 1}]


def test_a_number_that_is_too_long_for_any_field_stays_text_in_json_as_in_yaml() -> (
    None
):
    digits = "9" * 5000
    assert [
        dict(one) for one in parse(f'{{"a": {digits}, "b": 0.{digits}}}', "a.json")
    ] == [{"a": digits, "b": f"0.{digits}"}]
    assert value(digits) == digits


@pytest.mark.parametrize("secret", ["!hunter2", "*hunter2", "!h!hunter2", "!hunter2!x"])
def test_a_password_that_looks_like_a_tag_or_an_alias_is_not_shown(secret: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse(f"data:\n  password: {secret}\n", "secret.yaml")
    assert "hunter2" not in str(caught.value)
    assert "line 2" in str(caught.value)


def test_values_that_json_cannot_represent_are_rejected_without_a_text_too() -> None:
    spec = {"source": {"huggingFace": {"repo": "a/b", "revision": "x\ud800"}}}
    for bad in (spec, {"\udfff": 1}, {"sizeGiB": 10**5000}):
        with pytest.raises(InvalidManifest) as caught:
            admit(
                {
                    "apiVersion": "modelplane.ai/v1alpha1",
                    "kind": "ModelCache",
                    "metadata": {"name": "x"},
                    "spec": bad,
                },
                CHECKS,
            )
        json.dumps(str(caught.value), ensure_ascii=False).encode()
    for data in ({"a": "\ud800"}, {"\ud800": "a"}):
        with pytest.raises(InvalidManifest, match=r"UTF-8|half of a surrogate pair"):
            admit(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "x"},
                    "stringData": data,
                },
                CHECKS,
            )


def test_a_number_that_python_does_not_write_is_refused() -> None:
    with pytest.raises(InvalidManifest, match="has a number of more than 256 bits"):
        admit(
            {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "ModelCache",
                "metadata": {"name": "x", "uid": 10**5000},
            },
            CHECKS,
        )


def test_text_that_is_not_json_is_read_as_yaml() -> None:
    assert [dict(one) for one in parse('{"a": NaN, "b": -Infinity}', "a.json")] == [
        {"a": "NaN", "b": "-Infinity"}
    ]


def test_a_text_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_TEXT_MAX", 1 << 20)
    with pytest.raises(InvalidManifest, match="is larger than 1 MiB"):
        parse("#" + "x" * (1 << 20), "a.yaml")


def test_an_error_is_one_line_without_control_characters() -> None:
    spec = {"a\x1b[31m\nModelCache default/y: is fine": 1, "b\u202ec": 1, "d\x9b2J": 1}
    with pytest.raises(InvalidManifest) as caught:
        admit(
            {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "ModelCache",
                "metadata": {"name": "x"},
                "spec": spec,
            },
            CHECKS,
        )
    lines = str(caught.value).splitlines()
    assert all(
        line.startswith("ModelCache default/x: ") and line.isprintable()
        for line in lines
    )
    assert "\\x1b[31m\\x0aModelCache default/y" in str(caught.value)
    assert "b\\u202ec" in str(caught.value)


@pytest.mark.slow
def test_of_many_errors_the_first_are_shown_and_the_rest_is_counted() -> None:
    spec = {f"f{n}" + "x" * 5000: 1 for n in range(2000)}
    with pytest.raises(InvalidManifest) as caught:
        admit(
            {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "ModelCache",
                "metadata": {"name": "x"},
                "spec": spec,
            },
            CHECKS,
        )
    assert len(caught.value.problems) > 2000
    lines = str(caught.value).splitlines()
    assert len(str(caught.value)) < 34_000
    assert lines[-1] == f"and {len(caught.value.problems) - len(lines) + 1} more"


def test_warnings_are_bounded_too() -> None:
    tree = merged(
        a_cluster(),
        {
            "metadata": {
                "annotations": {
                    f"modelplane.ai/rooting-{number}": "a" for number in range(1000)
                }
            }
        },
    )
    warnings = admit(tree, CHECKS).warnings
    assert (len(warnings), warnings[-1]) == (101, "and 900 more")


def test_of_many_short_errors_a_hundred_are_shown() -> None:
    problems = [
        Problem("ModelCache default/x", "spec", f"wrong {number}")
        for number in range(101)
    ]
    assert InvalidManifest(problems).lines()[98:] == [
        str(problems[98]),
        str(problems[99]),
        "and 1 more",
    ]
    assert InvalidManifest(problems[:100]).lines() == [
        str(problem) for problem in problems[:100]
    ]
