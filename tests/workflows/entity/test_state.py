"""What every entity carries from run to run."""

from workflows.entity.state import EntityState

AT = "2026-01-01T00:00:00Z"


def test_carried_metadata_keeps_its_names_on_the_wire() -> None:
    carried = {"revision": 4, "created": AT, "deleted": AT}
    state = EntityState.model_validate(carried)
    assert (state.resource_version, state.creation_timestamp, state.deletion_timestamp) == (4, AT, AT)
    assert carried.items() <= state.model_dump(mode="json", by_alias=True).items()


def test_an_object_is_being_deleted_from_its_deletion_timestamp_on() -> None:
    assert not EntityState().deleting
    assert EntityState(deletion_timestamp=AT).deleting
