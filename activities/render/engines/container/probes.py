"""Probes of an engine: when it gets requests, how long it may load, when it hangs.

An engine loads for minutes and does not respond in the meantime. Liveness alone would
restart it repeatedly, so liveness comes with a startup probe: Kubernetes runs no other
probe until the startup probe has succeeded.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import (
    WORKER,
    EngineSpec,
    LivenessSpec,
    MemberSpec,
    ProbesSpec,
)
from activities.render.inputs.reader import Reader
from activities.render.objects import contract
from activities.render.objects.manifest import Json
from api_types.resources.parts import probes as bounds

# A model without a cache is downloaded at every start, and its size is unknown.
_STARTUP_SECONDS_WITHOUT_CACHE = 3600
# With a cache: the fixed time of every start, for example for compiling and capturing
# graphs, and the time per GiB on slow shared storage.
_STARTUP_SECONDS_BASE = 600
_STARTUP_SECONDS_PER_GIB = 6
# A hung engine does not stop by itself. Its grace period is minimal, because its
# requests are lost already.
_HUNG_GRACE_SECONDS = 5


def read_probes(member: Reader, role: str) -> ProbesSpec | None:
    """Read the probes that a member requests. Returns None if it requests none."""
    if not member.has("probes"):
        return None
    if role == WORKER:
        member.findings.problem(member.where, f"probes: {bounds.NO_FOLLOWERS}")
    reader = member.object("probes")
    startup = (
        reader.integer("startupSeconds", 0, *bounds.STARTUP_SECONDS)
        if reader.has("startupSeconds")
        else 0
    )
    if not reader.has("liveness"):
        return ProbesSpec(startup)
    liveness = reader.object("liveness")
    default = bounds.Liveness()
    return ProbesSpec(
        startup,
        LivenessSpec(
            liveness.integer(
                "periodSeconds", default.period_seconds, *bounds.PERIOD_SECONDS
            ),
            liveness.integer(
                "timeoutSeconds", default.timeout_seconds, *bounds.TIMEOUT_SECONDS
            ),
            liveness.integer(
                "failureThreshold", default.failure_threshold, *bounds.FAILURES
            ),
        ),
    )


def probes(context: Context, engine: EngineSpec, port: int) -> Json:
    """Return the probes of the serving pods of an engine, which listen on `port`.

    Followers that serve have the probes of their leader.
    """
    member = engine.server
    asked = {"httpGet": {"path": engine.profile.health_path, "port": port}}
    fields: Json = {"readinessProbe": {**asked, **contract.READINESS}}
    if startup_seconds := _startup_seconds(context, member):
        period = contract.READINESS["periodSeconds"]
        fields["startupProbe"] = {
            **asked,
            "periodSeconds": period,
            "timeoutSeconds": contract.READINESS["timeoutSeconds"],
            "failureThreshold": -(-startup_seconds // period),
        }
    if member.probes and (liveness := member.probes.liveness):
        fields["livenessProbe"] = {
            **asked,
            "periodSeconds": liveness.period_seconds,
            "timeoutSeconds": liveness.timeout_seconds,
            "failureThreshold": liveness.failure_threshold,
            "terminationGracePeriodSeconds": _HUNG_GRACE_SECONDS,
        }
    return fields


def _startup_seconds(context: Context, member: MemberSpec) -> int:
    """Return the longest time that a member may load.

    0 means no limit.

    The member's own value comes first, then the setting, then the size of its model.
    """
    chosen = (
        member.probes.startup_seconds if member.probes else 0
    ) or context.settings.startup_seconds_max
    if chosen or not member.probes:
        return chosen
    if not context.replica.cache_gib:
        return _STARTUP_SECONDS_WITHOUT_CACHE
    # Round up to a power of two, so that a small growth of a volume changes no pod.
    gib = 1 << (context.replica.cache_gib - 1).bit_length()
    return min(
        _STARTUP_SECONDS_BASE + gib * _STARTUP_SECONDS_PER_GIB,
        bounds.STARTUP_SECONDS[1],
    )
