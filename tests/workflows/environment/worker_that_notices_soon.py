"""The worker as users run it, but a control cluster counts as lost after `CONTROL_CLUSTER_LOST_AFTER` seconds, not two minutes."""

import os
from functools import partial

import worker
from activities.routing.activities import RoutingActivities

SECONDS_VARIABLE = "CONTROL_CLUSTER_LOST_AFTER"


if __name__ == "__main__":
    seconds = float(os.environ[SECONDS_VARIABLE])
    vars(worker)["RoutingActivities"] = partial(RoutingActivities, unreachable_after_seconds=seconds)
    worker.main()
