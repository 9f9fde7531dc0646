"""What decides is not interrupted: its caches would keep what an exception in the midst of a computation left."""

from temporalio import activity

from workflows.fleet_scheduler.decide_activity import decide_batch


def test_the_thread_of_a_decision_goes_on_when_the_task_of_the_workflow_has_timed_out() -> None:
    definition = activity._Definition.from_callable(decide_batch)
    assert definition
    assert definition.no_thread_cancel_exception
