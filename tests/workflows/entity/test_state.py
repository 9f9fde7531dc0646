"""The state that every entity carries from run to run."""

from workflows.entity.state import EntityState

AT = "2026-01-01T00:00:00Z"


def test_an_object_is_being_deleted_from_its_deletion_timestamp_on() -> None:
    assert not EntityState().deleting
    assert EntityState(deletion_timestamp=AT).deleting
