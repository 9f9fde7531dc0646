"""The version of an object is the time of its last change, and increases even if the
clock is set back.

These tests need no server.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.search_attributes import VERSION
from workflows.entity.context import EntityContext, microseconds
from workflows.entity.publishing import Publisher
from workflows.entity.state import EntityState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Published:
    """An object outside Temporal, with its clock and the versions that it published to
    visibility.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.versions = NOW, list[int]()
        self.context = EntityContext(
            "ModelService",
            EntityState(uid="u"),
            lambda: None,
            "modelservice/ml/s",
            lambda: self.now,
        )
        self.publisher = Publisher(self.context)
        monkeypatch.setattr(workflow, "memo_value", lambda _, default: default)
        monkeypatch.setattr(workflow, "patched", lambda _: True)
        monkeypatch.setattr(workflow, "set_current_details", lambda _: None)
        monkeypatch.setattr(workflow, "upsert_search_attributes", self._upsert)

    def _upsert(self, updates: list[Any]) -> None:
        self.versions += [update.value for update in updates if update.key == VERSION]

    def change(self) -> int:
        self.context.mark_changed()
        return self.context.state.resource_version

    def publish(self) -> None:
        self.publisher.publish("Ready", [])


@pytest.mark.parametrize(
    "moved",
    [timedelta(), timedelta(seconds=-5)],
    ids=["in the same microsecond", "when the clock went back"],
)
def test_every_change_has_a_new_version(
    monkeypatch: pytest.MonkeyPatch, moved: timedelta
) -> None:
    shown = Published(monkeypatch)
    first = shown.change()
    assert first == microseconds(NOW)
    shown.publish()
    shown.now += moved
    assert shown.change() == first + 1
    shown.publish()
    shown.publish()
    assert shown.versions == [first, first + 1]
    shown.now = NOW + timedelta(seconds=1)
    assert shown.change() == microseconds(shown.now)


def test_a_change_before_a_long_step_has_its_publication_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Published(monkeypatch)
    shown.change()
    shown.now += timedelta(minutes=5)
    shown.publish()
    assert shown.versions == [microseconds(shown.now)]
    assert shown.context.state.resource_version == microseconds(shown.now), (
        "the object has the same version"
    )
    shown.now += timedelta(minutes=5)
    shown.publish()
    assert len(shown.versions) == 1, "nothing has changed since then"
