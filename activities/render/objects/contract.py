"""The ports, paths and names on which engine images and the platform agree."""

from api_types import limits, names

ENGINE_CONTAINER = "engine"
ENGINE_PORT = limits.ENGINE_PORT
# The default port of the decode engine, because the sidecar listens on port 8000.
DECODE_PORT = 8001
ENGINE_PORT_NAME = "http"
METRICS_PORT_NAME = "metrics"
# The path of the picker's own metrics. Those of engines are in their profiles.
METRICS_PATH = "/metrics"
# Some engines need a second to respond while they load.
READINESS = {"initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5}

CACHE_MOUNT_PATH = "/mnt/models"
CACHE_VOLUME = "model-cache"
SHM_MOUNT_PATH = "/dev/shm"  # noqa: S108 -- engines use it for shared memory
SHM_VOLUME = "dshm"
CLAIM = "devices"

LEADER_ADDRESS_ENV = "MODELPLANE_LEADER_ADDRESS"
RANK_ENV = "MODELPLANE_RANK"
MODELPLANE_ENV_PREFIX = "MODELPLANE_"
# The LeaderWorkerSet controller sets these before all others and overrides the
# template.
LWS_ENV = ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")

# The LeaderWorkerSet controller sets this label on every pod of a set.
LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"

# If a user could refer to a copy that Modelplane creates on clusters, a pod could read
# another tenant's copy.
PLATFORM_NAME_REFUSED = (
    f"starts with {names.COPY_PREFIX!r} or {names.CACHE_CLAIM_PREFIX!r}, or ends with "
    f"{names.METRICS_TOKEN_SUFFIX!r}: such names are reserved for objects of the platform"
)

# The llm-d gateway and picker, which split prefill and decode, read these labels.
LLM_D_ROLE = "llm-d.ai/role"
LLM_D_SERVING = "llm-d.ai/inference-serving"
LLM_D_MODEL = "llm-d.ai/model"
# The endpoint picker selects the names of the metrics that it reads by this label.
# Without it, the picker reads the metrics of vLLM.
LLM_D_ENGINE_TYPE = "llm-d.ai/engine-type"
APP = "app"


def restricted() -> dict[str, object]:
    """Return the security context of containers that Modelplane adds.

    Engines may need root.
    """
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
    }


def is_made_by_platform(name: str) -> bool:
    """Return whether the platform creates a Secret or ConfigMap of this name.

    It may be a copy, or the token of an endpoint picker, which has more permissions
    than a pod.
    """
    return name.startswith(
        (names.COPY_PREFIX, names.CACHE_CLAIM_PREFIX)
    ) or name.endswith(names.METRICS_TOKEN_SUFFIX)
