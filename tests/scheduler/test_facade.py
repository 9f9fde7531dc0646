"""The public names of the scheduler, and the modules that importing it loads."""

import subprocess
import sys

import scheduler

HEAVY = ("celpy", "kubernetes", "lark", "pydantic", "re2", "temporalio", "yaml")


def test_importing_the_scheduler_loads_no_engine_and_no_sdk() -> None:
    code = f"import sys, scheduler; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_export_exists_once() -> None:
    assert len(set(scheduler.__all__)) == len(scheduler.__all__)
    assert not [name for name in scheduler.__all__ if not hasattr(scheduler, name)]


def test_the_parts_of_the_scheduling_cycle_are_not_exported() -> None:
    """A caller that runs parts of the cycle could decide differently from the live
    scheduler.
    """
    parts = {
        "FleetOverlay",
        "SchedulingCycle",
        "build_decision",
        "cluster_details",
        "in_queue_order",
    }
    assert not parts & set(vars(scheduler))
