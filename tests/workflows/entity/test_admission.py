"""Requests are accepted once, however often they are sent."""

from workflows.entity.admission import REQUESTS_KEPT, accept_request
from workflows.entity.state import EntityState


def test_a_request_id_is_accepted_once() -> None:
    state = EntityState()
    assert [
        accept_request(state, "a"),
        accept_request(state, "b"),
        accept_request(state, "a"),
    ] == [True, True, False]
    assert state.requests == ["a", "b"]


def test_a_request_without_an_id_is_always_new() -> None:
    state = EntityState()
    assert [accept_request(state, ""), accept_request(state, "")] == [True, True]
    assert state.requests == []


def test_only_the_newest_request_ids_are_remembered() -> None:
    state = EntityState()
    for number in range(REQUESTS_KEPT + 1):
        accept_request(state, str(number))
    assert len(state.requests) == REQUESTS_KEPT
    assert accept_request(state, "0")
    assert not accept_request(state, str(REQUESTS_KEPT))
