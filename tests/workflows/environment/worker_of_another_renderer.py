"""The worker as users run it, of a version that renders other pods."""

import worker
from activities.render import version
from activities.render.engines import context as rendering
from activities.render.engines import pods
from activities.render.engines.context import Context
from activities.render.engines.spec import EngineSpec
from activities.render.objects.manifest import Json
from activities.workloads import pending

VERSION = "99.0.0"
ADDED = {"key": "example.com/newer", "operator": "Exists"}

_tolerations = pods._tolerations


def _more_tolerations(context: Context, engine: EngineSpec) -> list[Json]:
    return [*_tolerations(context, engine), ADDED]


if __name__ == "__main__":
    for module in (version, rendering, pending):
        module.RENDERER_VERSION = VERSION  # type: ignore[attr-defined]
    pods._tolerations = _more_tolerations
    worker.main()
