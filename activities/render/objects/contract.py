"""What an engine image and the platform agree on: ports, paths and names that users rely on."""

from api_types import limits, names

ENGINE_CONTAINER = "engine"
ENGINE_PORT = limits.ENGINE_PORT
# Where the decode engine listens by default: the sidecar takes port 8000.
DECODE_PORT = 8001
ENGINE_PORT_NAME = "http"
HEALTH_PATH = "/health"
METRICS_PATH = "/metrics"
# Some engines take a second to answer while they load.
READINESS = {"initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5}

CACHE_MOUNT_PATH = "/mnt/models"
CACHE_VOLUME = "model-cache"
SHM_MOUNT_PATH = "/dev/shm"  # noqa: S108 -- the path that engines use for shared memory, not a temporary file of ours
SHM_VOLUME = "dshm"
CLAIM = "devices"

LEADER_ADDRESS_ENV = "MODELPLANE_LEADER_ADDRESS"
RANK_ENV = "MODELPLANE_RANK"
MODELPLANE_ENV_PREFIX = "MODELPLANE_"
# Set by the LeaderWorkerSet controller in front of all others, whatever the template has.
LWS_ENV = ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")

# Written by the LeaderWorkerSet controller on every pod of a set.
LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"

# A user's reference to a copy that we make on clusters would read another tenant's copy.
PLATFORM_NAME_REFUSED = (
    f"starts with {names.COPY_PREFIX!r} or {names.CACHE_CLAIM_PREFIX!r}, or ends with {names.METRICS_TOKEN_SUFFIX!r}: such names are kept "
    "for what the platform makes"
)

# The gateway of the project that splits prefill and decode reads these.
LLM_D_ROLE = "llm-d.ai/role"
LLM_D_SERVING = "llm-d.ai/inference-serving"
LLM_D_MODEL = "llm-d.ai/model"
# By it the endpoint picker chooses the names of the metrics that it reads; without it, those of vLLM.
LLM_D_ENGINE_TYPE = "llm-d.ai/engine-type"
APP = "app"


def restricted() -> dict[str, object]:
    """Give the security context of containers that we add; engines may need to be root."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}


def is_made_by_platform(name: str) -> bool:
    """Tell whether a Secret or ConfigMap of this name is ours: a copy, or the token of an endpoint picker, which may more than a pod."""
    return name.startswith((names.COPY_PREFIX, names.CACHE_CLAIM_PREFIX)) or name.endswith(names.METRICS_TOKEN_SUFFIX)
