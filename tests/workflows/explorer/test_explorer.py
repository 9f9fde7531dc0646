"""The protocol holds in forty thousand steps with faults, from the seed of every run; campaigns draw more."""

import pytest

from tests.random_cases import SEED, cases
from tests.workflows.explorer.explore import EPISODE_STEPS, Episode, explore
from tests.workflows.explorer.world import Chances

STEPS = 40_000

# Episodes in which something was found, and what.
FOUND = {
    500039: "a new life of a deployment starts a replica on nodes that one which it does not track still uses",
    500121: "a replica of a higher priority starts before the preempted one of another deployment is gone",
    700026: "an orphan that visibility does not list is not charged",
    600078: "a replica that was started counts nodes of another one as its own",
    500037: "a deployment is deleted while a terminated replica of its name, which it does not track, has objects",
    700006: "a deployment is deleted before the scheduler has told it of a replica",
    910001: "a cluster is deleted while the account of a deployment with a replica there is missing",
    600018: "an account that arrives with the first pass of a run leaves its cluster closed",
    920014: "a late report makes a cluster of one that is gone",
    940078: "of two placements that wait, both start when the first of two preempted replicas is gone",
    940016: "a late request of an earlier deployment outdates one that is being deleted",
}
# The same, with workflow tasks that are executed twice.
FOUND_UNDONE = {
    8: "a placement is given back whose replica was started by a task that was undone",
    100027: "a deployment is deleted while the account of a terminated replica of it is missing",
    300317: "the account of a terminated cluster arrives after the report of the next one of its name",
    1000513: "a deployment is deleted while no object knows of a replica that was terminated, as its scheduler and its cluster were",
    1001818: "a late request is decided again by the next scheduler, and a new replica gets the uid of one that is gone",
    1002396: "a terminated replica that a cluster names later is not started again, for its deployment does not hear of it",
    1001944: "a replica that was terminated is started again on nodes that were given to another one meanwhile",
    1000647: "a replica that a terminated deployment started and did not report is deleted without its objects",
    1002952: "a replica gets the name of one that was terminated, and hides it from all who could delete its objects",
    2000512: "a replica that is gone is started again, and the late report of its end frees nodes that it uses",
    2001208: "a late answer to a request undoes a newer one to the same request",
}
# The same, with schedulers that continue the state of the one before.
FOUND_CONTINUED = {
    7000593: "what was reserved before is freed though it was started, for the report of that is lost",
    4001714: "a replica that is adopted because it reported itself is never seen Ready, for that report was dropped",
    4002102: "the late account of a terminated deployment has the next one of its name taken for one that is gone",
    12001531: "a replica that is released before its start is known is not charged for nodes that it uses",
}


@pytest.mark.random
@pytest.mark.slow
def test_no_order_of_messages_losses_and_restarts_overcommits_or_loses_anything() -> None:
    outcome = explore(SEED, cases(STEPS), Chances())
    assert outcome.steps >= cases(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND, ids=FOUND.get)
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    # They were found when no task was undone, and each scheduler read all anew: that takes other choices.
    Episode(seed, Chances(undone=0.0, interrupted=0.0, continued_lost=0.0)).run(EPISODE_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_UNDONE, ids=FOUND_UNDONE.get)
def test_what_was_found_once_with_undone_tasks_is_not_found_again(seed: int) -> None:
    Episode(seed, Chances(continued_lost=0.0)).run(EPISODE_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_CONTINUED, ids=FOUND_CONTINUED.get)
def test_what_was_found_once_with_continued_schedulers_is_not_found_again(seed: int) -> None:
    Episode(seed, Chances()).run(EPISODE_STEPS)
