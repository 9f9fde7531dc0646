"""A replica that an operator reset: its state does not know the effects of later tasks.

These tests need no server.
"""

import pytest

from tests.workflows.environment.serverless import Serverless, id_of
from tests.workflows.model_replica.builders import a_replica
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_replica.workflow import ModelReplicaWorkflow


def test_a_replica_learns_of_a_reset_from_its_new_random_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replay of the tasks before the reset comes before the new seed."""
    temporal = Serverless(monkeypatch, id_of("ModelReplica"))
    replica = ModelReplicaWorkflow(a_replica(apply_started=False))
    assert not replica.state.may_have_objects
    for learn in temporal.seeded:
        learn(1)
    assert replica.state.may_have_objects


def test_a_uid_that_an_update_drew_before_the_new_seed_is_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The seed of the earlier run would give the uid of an object that others superseded."""
    temporal = Serverless(monkeypatch, id_of("ModelCache"))

    def after_a_reset(cache: ModelCacheWorkflow) -> str:
        for learn in temporal.seeded:
            learn(1)
        return cache.state.uid

    assert after_a_reset(ModelCacheWorkflow(CacheState(uid="carried"))) == "carried"
    assigned = ModelCacheWorkflow(CacheState())
    assigned.state.uid = "assigned"
    assert after_a_reset(assigned) == "assigned"
    cache = ModelCacheWorkflow(CacheState())
    cache._begin()
    assert cache.state.uid
    assert not after_a_reset(cache)
    cache._has_begun = True
    cache._begin()
    drawn = cache.state.uid
    assert after_a_reset(cache) == drawn
