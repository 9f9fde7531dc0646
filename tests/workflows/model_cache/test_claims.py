"""Which replica gets a new volume, and when: a table over pure functions."""

from typing import NamedTuple

import pytest

from tests.workflows.model_cache.builders import a_copy, a_staging, ready
from workflows.model_cache.claims import (
    claims_in_use,
    mounting_replicas,
    next_assignments,
)
from workflows.model_cache.state import CacheUser

OLD, NEW = "claim-0", "claim-1"


def a_replica(
    name: str,
    *claims: str,
    assigned: str = "",
    deployment: str = "chat",
    cluster: str = "eu-1",
) -> CacheUser:
    """Return a replica whose pods may mount these claims."""
    return CacheUser(
        workflow_id=f"ModelReplica/ml/{name}",
        cluster=cluster,
        deployment=deployment,
        claims=list(claims),
        assigned_claim=assigned,
    )


class Case(NamedTuple):
    """Users of a cache whose new claim is complete, and the users that get it."""

    story: str
    users: list[CacheUser]
    given: list[str]
    deleting: bool = False


CASES = [
    Case(
        "a replica without a volume gets the complete one",
        [a_replica("a")],
        ["a"],
    ),
    Case(
        "a replica that has the volume gets nothing",
        [a_replica("a", NEW, assigned=NEW)],
        [],
    ),
    Case(
        "all that have no volume yet are given it at once",
        [a_replica("a"), a_replica("b")],
        ["a", "b"],
    ),
    Case(
        "of the replicas with an old volume only the first switches",
        [a_replica("b", OLD, assigned=OLD), a_replica("a", OLD, assigned=OLD)],
        ["a"],
    ),
    Case(
        "and while it switches, no other of its deployment does",
        [a_replica("a", OLD, NEW, assigned=NEW), a_replica("b", OLD, assigned=OLD)],
        [],
    ),
    Case(
        "when it has switched, the next one does",
        [a_replica("a", NEW, assigned=NEW), a_replica("b", OLD, assigned=OLD)],
        ["b"],
    ),
    Case(
        "deployments switch independently",
        [
            a_replica("a", OLD, assigned=OLD),
            a_replica("b", OLD, assigned=OLD, deployment="other"),
        ],
        ["a", "b"],
    ),
    Case(
        "a replica on a cluster where nothing is complete waits",
        [a_replica("a", cluster="us-1")],
        [],
    ),
    Case(
        "a deployment, which has no cluster, is given none",
        [a_replica("a", cluster="")],
        [],
    ),
    Case(
        "a cache that is being deleted is given to no new replica",
        [a_replica("a")],
        [],
        deleting=True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_replicas_that_get_the_new_volume(case: Case) -> None:
    stagings = {"eu-1": a_staging(ready()), "us-1": a_staging(a_copy())}
    assigned = next_assignments(
        {user.name: user for user in case.users}, stagings, deleting=case.deleting
    )
    assert assigned == [(name, NEW) for name in case.given]


def test_a_claim_is_in_use_where_a_replica_mounts_it_or_has_it_assigned() -> None:
    users = {
        "a": a_replica("a", OLD, assigned=NEW),
        "b": a_replica("b", "claim-2", cluster="us-1"),
        "c": a_replica("c"),
    }
    assert claims_in_use(users, "eu-1") == {OLD, NEW}
    assert claims_in_use(users, "us-1") == {"claim-2"}
    assert mounting_replicas(users.values()) == ["a", "b"]
