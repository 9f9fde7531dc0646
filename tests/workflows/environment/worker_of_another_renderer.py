"""The worker as users run it, of a version that makes other pods."""

from typing import Any

import worker
from activities.render import version
from activities.render.engines import context, pods
from activities.workloads import pending

VERSION = "99.0.0"
ADDED = {"key": "example.com/newer", "operator": "Exists"}

_tolerations = pods._tolerations


def _more_tolerations(*arguments: Any) -> list[dict[str, str]]:
    return [*_tolerations(*arguments), ADDED]


if __name__ == "__main__":
    for module in (version, context, pending):
        module.RENDERER_VERSION = VERSION  # type: ignore[attr-defined]
    pods._tolerations = _more_tolerations
    worker.main()
