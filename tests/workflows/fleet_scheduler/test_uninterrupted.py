"""Decisions are not interrupted, because an exception in the middle of a computation
would leave wrong caches behind.
"""

from temporalio import activity

from workflows.fleet_scheduler.decide_activity import decide_batch


def test_a_decision_thread_continues_after_its_workflow_task_timed_out() -> None:
    definition = activity._Definition.from_callable(decide_batch)
    assert definition
    assert definition.no_thread_cancel_exception
