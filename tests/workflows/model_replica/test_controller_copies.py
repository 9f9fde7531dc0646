"""The orders of a replica while a Secret that it copies is missing, without Temporal."""

from datetime import timedelta

from api_types.messages.entities import SecretsChanged
from tests.workflows.model_replica.builders import CLUSTER, DEPLOYMENT, SECRET_COPY
from tests.workflows.model_replica.controlled import Replica, a_start
from workflows.entity.calls.activity_options import AWAIT_COPIES
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.model_replica.apply import COPIES_PAUSE_MAX
from workflows.model_replica.orders import Apply
from workflows.model_replica.reducers import messages


def a_replica_without_its_secret() -> Replica:
    """Return a replica whose first apply lacked its Secret, as each later one would."""
    failures = [
        Failure("CredentialsInvalid", "Secret ml/hub does not exist") for _ in range(3)
    ]
    replica = Replica(
        a_start(),
        memo=CLUSTER.wire(),
        apply_failures=failures,
        apply_reason="SecretMissing",
    )
    replica.step()
    return replica


def applies(replica: Replica) -> int:
    return len([order for order in replica.orders if isinstance(order, Apply)])


def test_a_replica_with_a_missing_secret_applies_nothing_until_it_is_found() -> None:
    replica = a_replica_without_its_secret()
    assert replica.condition("ModelAccepted")[1:] == (
        "SecretMissing",
        "Secret ml/hub does not exist",
    )
    for _ in range(24):
        replica.now += timedelta(hours=1)
        replica.context.requeue_time = None
        replica.step()
    assert (applies(replica), replica.context.requeue_time) == (1, None)
    replica.apply_failures.clear()
    replica.controller.copies_found()
    replica.step()
    assert (applies(replica), replica.state.failure) == (2, NO_FAILURE)


def test_a_replica_compares_its_copies_when_it_learns_that_one_changed() -> None:
    replica = Replica(a_start(), memo=CLUSTER.wire())
    replica.step()
    assert applies(replica) == 1
    assert replica.state.applied
    with_copy = replica.state.applied.model_copy(
        update={"inventory": [DEPLOYMENT, SECRET_COPY]}
    )
    replica.state.applied = with_copy
    replica.step()
    assert applies(replica) == 1
    assert not messages.secrets_changed(
        replica.state, SecretsChanged(uid="another"), replica.now
    )
    replica.step()
    assert applies(replica) == 1
    assert messages.secrets_changed(
        replica.state, SecretsChanged(uid=replica.state.uid), replica.now
    )
    replica.step()
    assert (applies(replica), replica.state.copies_due) == (2, "")


def test_a_secret_found_right_after_an_attempt_is_used_within_a_minute() -> None:
    replica = a_replica_without_its_secret()
    replica.state.attempts = 100
    replica.controller.retry()
    replica.step()
    replica.apply_failures.clear()
    replica.controller.copies_found()
    replica.step()
    assert applies(replica) == 2
    replica.now += COPIES_PAUSE_MAX
    replica.step()
    assert applies(replica) == 3
    config = AWAIT_COPIES.config
    longest_pause = config["retry_policy"].maximum_interval  # type: ignore[union-attr]
    longest = longest_pause + config["start_to_close_timeout"]  # type: ignore[operator]
    assert longest < timedelta(minutes=1)


def test_a_replica_with_a_missing_secret_applies_at_once_on_request_or_for_a_new_template() -> (
    None
):
    replica = a_replica_without_its_secret()
    replica.controller.retry()
    replica.step()
    assert applies(replica) == 2
    replica.now += COPIES_PAUSE_MAX
    replica.state.generation += 1
    replica.step()
    assert applies(replica) == 3
