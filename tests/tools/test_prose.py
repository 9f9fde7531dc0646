"""The index of unclear English counts words as its readers would."""

from pathlib import Path

import pytest

from tools.prose import Text, indexes, texts_of

CODE = '''"""Give what a cloud is made of."""
# Those that wait are told so.
MESSAGE = f"no cluster has room for {name}: add nodes"
'''


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ("Return the factory that creates a client.", 0),
        ("Give what makes a client.", 2),
        ("What is the price?", 0),
        ("Those that wait start anew.", 2),
    ],
)
def test_headless_clauses_and_archaic_words_count(words: str, matches: int) -> None:
    assert Text("docs", "docs/a.md", words).matches == matches


def test_strings_of_the_code_are_a_group_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(CODE)
    assert list(texts_of(path, "front/a.py")) == [
        Text("front", "front/a.py:1", "Give what a cloud is made of."),
        Text("front", "front/a.py:2", "Those that wait are told so."),
        Text(
            "strings of front", "front/a.py:3", "no cluster has room for x: add nodes"
        ),
    ]


def test_code_in_documents_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("Start it.\n\n```\nwhat waits\n```\n")
    texts = list(texts_of(path, "docs/a.md"))
    assert [text.words.strip() for text in texts if text.words.strip()] == ["Start it."]


def test_an_index_is_a_rate_per_thousand_words() -> None:
    texts = [
        Text("a", "", "what waits"),
        Text("a", "", "two words"),
        Text("b", "", "x"),
    ]
    assert indexes(texts) == {"a": (250.0, 4), "b": (0.0, 1)}


def test_comments_and_sentences_of_scripts_count(tmp_path: Path) -> None:
    path = tmp_path / "a.js"
    path.write_text(
        "/** Returns the age. */\n// One line.\n"
        'const short = "a word";\nconst text = `no cluster has room: ${name}`;\n'
    )
    assert list(texts_of(path, "front/page/static/a.js")) == [
        Text("page", "front/page/static/a.js:1", " Returns the age. "),
        Text("page", "front/page/static/a.js:2", " One line."),
        Text(
            "strings of the page",
            "front/page/static/a.js:4",
            "no cluster has room: ${name}",
        ),
    ]
