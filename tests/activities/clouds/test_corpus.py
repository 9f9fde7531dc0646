"""The corpora of both clouds follow the rules of their format."""

import pytest

from tests.activities.clouds.corpus import CorpusEntry, defects, entries_of

NEXT = "name another zone"


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_entries_follow_the_rules(cloud: str) -> None:
    assert defects(entries_of(cloud)) == []


def test_each_rule_names_the_entry_that_violates_it() -> None:
    def an_entry(name: str, **change: object) -> CorpusEntry:
        given = {
            "source": "https://example.org/1",
            "request": "eks create_nodegroup",
            "verdict": "busy",
            "answer": {"code": "X"},
        }
        return CorpusEntry(name, **{**given, **change})  # type: ignore[arg-type]

    wrong = [
        an_entry("twice"),
        an_entry("twice"),
        an_entry("source", source="a colleague"),
        an_entry("verdict", verdict="fine"),
        an_entry("kind", kind="rumour"),
        an_entry("scene", kind="behaviour"),
        an_entry("step", verdict="final"),
        an_entry("good", verdict="final", says=(NEXT,)),
    ]
    assert defects(wrong) == [
        "twice: its name is not unique",
        "twice: its name is not unique",
        "source: its source is no URL",
        "verdict: its verdict is unknown",
        "kind: its kind is unknown",
        "scene: its behaviour has no scene",
        "step: it names no next step",
    ]
