"""The endpoint lists that the directory sends to services, and the withdrawals that it
confirms to owners.
"""

from typing import Any

import pytest

from api_types.messages.routing import (
    Endpoint,
    EndpointReport,
    EndpointWithdrawn,
    EntryEndpoints,
    EntrySelection,
    Routed,
    ServiceEndpoints,
    ServiceReport,
)
from workflows.endpoint_directory.directory import Directory
from workflows.endpoint_directory.state import DirectoryState

NAMESPACE = "ml-team"


def a_directory(state: DirectoryState | None = None) -> Directory:
    return Directory(
        NAMESPACE, state or DirectoryState(surveyed=True), lambda last: last + 1
    )


def reported(
    name: str,
    sequence: int = 1,
    *,
    uid: str = "",
    backend: bool = True,
    gone: bool = False,
    **labels: str,
) -> EndpointReport:
    """Return the report of an endpoint with these labels.

    Without labels, it is a withdrawal.
    """
    uid = uid or f"uid-{name}"
    url = f"http://10.0.0.1/{NAMESPACE}/{name}/v1"
    endpoint = (
        Endpoint(
            name=name,
            uid=uid,
            labels=labels,
            url=url,
            backend=f"me-{name}" if backend else "",
        )
        if labels
        else None
    )
    return EndpointReport(
        owner="ModelReplica",
        name=name,
        uid=uid,
        sequence=sequence,
        endpoint=endpoint,
        gone=gone,
    )


def serving(
    name: str,
    *entries: EntrySelection,
    sequence: int = 1,
    created: str = "",
    **more: Any,
) -> ServiceReport:
    return ServiceReport(
        name=name,
        uid=f"uid-{name}",
        sequence=sequence,
        created=created,
        entries=list(entries),
        **more,
    )


def by(priority: int = 0, **labels: str) -> EntrySelection:
    return EntrySelection(match_labels=labels, priority=priority)


def lists(directory: Directory) -> dict[str, ServiceEndpoints]:
    return {
        name: ServiceEndpoints.model_validate(request.payload)
        for name, request in directory.lists().items()
    }


def answers(directory: Directory) -> dict[str, EndpointWithdrawn]:
    return {
        request.workflow_id: EndpointWithdrawn.model_validate(request.payload)
        for request in directory.answers()
    }


def names(entry: EntryEndpoints) -> list[str]:
    return [endpoint.name for endpoint in entry.endpoints]


def routes(directory: Directory, service: str, version: int, *endpoints: str) -> None:
    directory.routed(
        Routed(
            service=service,
            uid=f"uid-{service}",
            version=version,
            endpoints=list(endpoints),
        )
    )


def test_an_endpoint_is_in_the_first_entry_that_selects_it() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a"), by(tier="x"), by(app="b")))
    directory.report_endpoint(reported("both", app="a", tier="x"))
    directory.report_endpoint(reported("other", app="c", tier="x"))
    directory.report_endpoint(reported("neither", app="c"))
    (found,) = lists(directory).values()
    assert [names(entry) for entry in found.entries] == [["both"], ["other"], []]
    assert [entry.matched for entry in found.entries] == [1, 1, 0]


def test_an_endpoint_without_a_backend_matches_but_is_not_listed() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", backend=False, app="a"))
    (found,) = lists(directory).values()
    assert (
        found.entries[0].matched,
        found.entries[0].ready,
        names(found.entries[0]),
    ) == (1, 0, [])


def test_an_entry_lists_the_first_sixteen_of_many_by_name_and_counts_all() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    for number in reversed(range(20)):
        directory.report_endpoint(reported(f"e{number:02}", app="a"))
    (found,) = lists(directory).values()
    assert (found.entries[0].ready, names(found.entries[0])) == (
        20,
        [f"e{number:02}" for number in range(16)],
    )


def test_of_more_than_sixteen_endpoints_the_first_routable_ones_are_listed() -> None:
    directory = a_directory()
    directory.report_service(
        serving("s", *(by(app=f"a{number:02}") for number in range(20)))
    )
    for number in range(20):
        directory.report_endpoint(reported(f"e{number:02}", app=f"a{number:02}"))
    (found,) = lists(directory).values()
    assert [bool(entry.endpoints) for entry in found.entries] == [True] * 16 + [
        False
    ] * 4


@pytest.mark.parametrize(
    ("own", "spill", "last", "standby"),
    [
        (True, True, True, [False, True, True]),
        (False, True, True, [False, False, True]),
        (False, False, True, [False, False, False]),
        (False, False, False, [False, False, False]),
    ],
)
def test_only_the_smallest_priority_with_a_routable_endpoint_serves(
    own: bool, spill: bool, last: bool, standby: list[bool]
) -> None:
    directory = a_directory()
    directory.report_service(
        serving("s", by(app="own"), by(1, app="spill"), by(2, app="last"))
    )
    for name, backend in (("own", own), ("spill", spill), ("last", last)):
        directory.report_endpoint(reported(name, backend=backend, app=name))
    (found,) = lists(directory).values()
    assert [entry.standby for entry in found.entries] == standby
    listed = [names(entry) for entry in found.entries]
    assert [bool(each) for each in listed].count(True) == (
        1 if any((own, spill, last)) else 0
    )


def test_a_gateway_that_falls_back_gets_the_two_smallest_priorities() -> None:
    directory = a_directory()
    entries = by(2, app="last"), by(app="none"), by(app="own"), by(1, app="spill")
    directory.report_service(serving("s", *entries, falls_back=True))
    for name in ("own", "spill", "last"):
        directory.report_endpoint(reported(name, app=name))
    (found,) = lists(directory).values()
    assert [names(entry) for entry in found.entries] == [[], [], ["own"], ["spill"]]
    assert [entry.standby for entry in found.entries] == [True, False, False, True]


def test_an_endpoint_that_no_service_selects_sends_nothing() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    lists(directory)
    directory.report_endpoint(reported("b", app="b"))
    assert lists(directory) == {}
    directory.report_endpoint(reported("b", 2, app="b", tier="x"))
    assert not directory.has_work


def test_the_same_content_is_not_sent_twice() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", app="a"))
    assert len(lists(directory)) == 1
    directory.report_endpoint(reported("a", 2, app="a"))
    assert lists(directory) == {}


def test_a_service_that_reports_again_gets_its_list_again() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    first = lists(directory)["s"]
    directory.report_service(serving("s", by(app="a")))
    assert lists(directory)["s"].version > first.version


def test_an_endpoint_is_withdrawn_when_the_route_no_longer_has_it() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", app="a"))
    routes(directory, "s", lists(directory)["s"].version, "a")
    directory.report_endpoint(reported("a", 2))
    assert answers(directory) == {}
    version = lists(directory)["s"].version
    routes(directory, "s", version - 1, "a")
    assert answers(directory) == {}, "an answer to an older list is ignored"
    routes(directory, "s", version)
    assert answers(directory) == {
        f"modelreplica/{NAMESPACE}/a": EndpointWithdrawn(uid="uid-a", sequence=2)
    }
    assert answers(directory) == {}


def test_a_listed_endpoint_is_not_withdrawn_before_the_service_answers() -> None:
    """The service may be applying the list with the endpoint at this moment."""
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", app="a"))
    lists(directory)
    directory.report_endpoint(reported("a", 2))
    assert answers(directory) == {}
    routes(directory, "s", lists(directory)["s"].version)
    assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"]


def test_an_endpoint_is_withdrawn_when_a_repeated_list_is_applied_without_it() -> None:
    """The route could not be applied at first, because another owner's object had its name."""
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", app="a"))
    routes(directory, "s", lists(directory)["s"].version, "a")
    directory.report_endpoint(reported("a", 2))
    version = lists(directory)["s"].version
    routes(directory, "s", version, "a")
    assert answers(directory) == {}
    routes(directory, "s", version)
    assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"]


def test_an_unselected_endpoint_is_withdrawn_at_once_and_a_repeat_is_answered() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="other")))
    directory.report_endpoint(reported("a", 1))
    assert answers(directory) == {}, (
        "the service may have a list of an earlier directory"
    )
    routes(directory, "s", lists(directory)["s"].version)
    for _ in range(2):
        directory.report_endpoint(reported("a", 2))
        assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"]


def test_a_deleted_or_lost_service_blocks_no_withdrawal() -> None:
    for end in ("gone", "lost"):
        directory = a_directory()
        directory.report_service(serving("s", by(app="a")))
        directory.report_endpoint(reported("a", app="a"))
        routes(directory, "s", lists(directory)["s"].version, "a")
        directory.report_endpoint(reported("a", 2))
        if end == "gone":
            directory.report_service(serving("s", sequence=2, gone=True))
        else:
            directory.lose(["s"])
        assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"], end
        assert lists(directory) == {}


def test_a_late_message_of_a_deleted_service_changes_nothing() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_service(serving("s", sequence=2, gone=True))
    directory.report_service(serving("s", by(app="a")))
    assert directory.services == {}


def test_a_late_message_of_a_deleted_endpoint_changes_nothing() -> None:
    directory = a_directory()
    directory.report_endpoint(reported("a", app="a"))
    directory.report_endpoint(reported("a", 3, gone=True))
    directory.report_endpoint(reported("a", 2, app="a"))
    assert directory.endpoints == {}
    directory.report_endpoint(reported("a", 1, uid="another", app="a"))
    assert list(directory.endpoints) == ["ModelReplica/a"]


def test_a_lost_directory_learns_the_routed_endpoints_from_a_service() -> None:
    directory = a_directory()
    directory.report_endpoint(reported("a", 2))
    answers(directory)
    directory.report_service(serving("s", by(app="a"), routed=["a"]))
    directory.report_endpoint(reported("a", 2))
    assert answers(directory) == {}, "the route still has it"
    routes(directory, "s", lists(directory)["s"].version)
    assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"]


def test_nothing_is_sent_before_all_earlier_reports_are_known() -> None:
    directory = Directory(NAMESPACE, DirectoryState(), lambda last: last + 1)
    directory.report_endpoint(reported("a", 2))
    assert answers(directory) == {}
    directory.report_service(serving("s", by(app="b"), routed=["a"]))
    directory.complete()
    assert answers(directory) == {}, "the route still has it"
    routes(directory, "s", lists(directory)["s"].version)
    assert list(answers(directory)) == [f"modelreplica/{NAMESPACE}/a"]


def test_an_endpoint_is_shared_with_the_oldest_service_that_selects_it() -> None:
    directory = a_directory()
    directory.report_endpoint(reported("a", app="a", tier="x"))
    directory.report_service(
        serving("young", by(app="a"), created="2026-01-02T00:00:00Z")
    )
    directory.report_service(
        serving("old", by(tier="x"), created="2026-01-01T00:00:00Z")
    )
    found = lists(directory)
    assert found["old"].entries[0].endpoints[0].shared_with == ""
    assert found["young"].entries[0].endpoints[0].shared_with == "old"
    directory.report_service(serving("old", sequence=2, gone=True))
    assert lists(directory)["young"].entries[0].endpoints[0].shared_with == ""


def test_the_whole_state_is_carried_over_to_the_next_run() -> None:
    directory = a_directory()
    directory.report_service(serving("s", by(app="a")))
    directory.report_endpoint(reported("a", app="a"))
    version = lists(directory)["s"].version
    directory.report_endpoint(reported("a", 2))
    carried = DirectoryState.model_validate(
        directory.carried(DirectoryState()).model_dump(mode="json", by_alias=True)
    )
    following = a_directory(carried)
    assert following.has_work
    found = lists(following)["s"]
    assert found.version > version
    routes(following, "s", found.version)
    assert list(answers(following)) == [f"modelreplica/{NAMESPACE}/a"]
