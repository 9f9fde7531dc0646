"""No name that a recorded version has in histories and messages disappears.

A rename in the code does not change the wire.
"""

import json

import pytest

from tests.workflows.histories.wire_names import RECORDED, wire_names

NAMES: dict[str, list[str]] = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("what", NAMES)
def test_names_on_the_wire_stay(what: str) -> None:
    assert set(NAMES[what]) - set(wire_names().get(what, ())) == set()


def test_each_message_is_in_the_record() -> None:
    """New names are recorded with the next version.

    This only checks that the record belongs to this project.
    """
    assert {what for what in wire_names() if what.startswith("signal")} & set(NAMES)
