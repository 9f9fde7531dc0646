"""Probes of an engine: when it may get requests, how long it may load, and when it is hung.

An engine loads for minutes and answers nothing meanwhile. Liveness alone would restart it again and again, so whoever wants liveness gets
a startup probe before it: until that one has succeeded, Kubernetes asks no other.
"""

from activities.render.engines.context import Context
from activities.render.engines.spec import WORKER, Liveness, Member, Probes
from activities.render.inputs.reader import Reader
from activities.render.objects import contract
from activities.render.objects.manifest import Json
from api_types.resources.parts import probes as bounds

# A model without a cache is downloaded at every start, of whatever size it is.
_STARTUP_SECONDS_WITHOUT_CACHE = 3600
# With one: what every start takes, such as compiling and capturing graphs, and for each GiB what slow shared storage takes.
_STARTUP_SECONDS_BASE = 600
_STARTUP_SECONDS_PER_GIB = 6
# A hung engine does not end by itself. It has no time of grace: what it was doing is lost already.
_HUNG_GRACE_SECONDS = 5


def read_probes(member: Reader, role: str) -> Probes | None:
    """Read the probes that a member asks for; None if it asks for none."""
    if not member.has("probes"):
        return None
    if role == WORKER:
        member.findings.problem(member.where, f"probes: {bounds.NO_FOLLOWERS}")
    reader = member.object("probes")
    startup = reader.integer("startupSeconds", 0, *bounds.STARTUP_SECONDS) if reader.has("startupSeconds") else 0
    if not reader.has("liveness"):
        return Probes(startup)
    liveness = reader.object("liveness")
    default = bounds.Liveness()
    return Probes(
        startup,
        Liveness(
            liveness.integer("periodSeconds", default.period_seconds, *bounds.PERIOD_SECONDS),
            liveness.integer("timeoutSeconds", default.timeout_seconds, *bounds.TIMEOUT_SECONDS),
            liveness.integer("failureThreshold", default.failure_threshold, *bounds.FAILURES),
        ),
    )


def probes(context: Context, member: Member, port: int) -> Json:
    """Give the probes of a serving member that listens on `port`."""
    asked = {"httpGet": {"path": contract.HEALTH_PATH, "port": port}}
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


def _startup_seconds(context: Context, member: Member) -> int:
    """Give the longest time that a member may load: its own, that of the setting, or from the size of its model; 0 without a limit."""
    chosen = (member.probes.startup_seconds if member.probes else 0) or context.settings.startup_seconds_max
    if chosen or not member.probes:
        return chosen
    if not context.replica.cache_gib:
        return _STARTUP_SECONDS_WITHOUT_CACHE
    # The next power of two: a volume that grows a little changes no pod.
    gib = 1 << (context.replica.cache_gib - 1).bit_length()
    return min(_STARTUP_SECONDS_BASE + gib * _STARTUP_SECONDS_PER_GIB, bounds.STARTUP_SECONDS[1])
