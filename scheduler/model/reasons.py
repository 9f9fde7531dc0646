"""The codes in the scheduler's answers: filters, eviction reasons, fit codes, actions and states.

They are public: conditions, `plan -o json`, events and metrics show them.
"""

# Filters of a cluster, in the order in which they run; the first that fails is the cluster's reason.
LABEL_MISMATCH = "LabelMismatch"
CACHE_FOOTPRINT = "CacheFootprint"
CACHE_INCAPABLE = "CacheIncapable"
DELETING = "Deleting"
NOT_READY = "NotReady"
NO_GATEWAY = "NoGateway"
TAINTED = "Tainted"
NO_POOLS = "NoPools"
NO_POOL_MATCHES = "NoPoolMatches"
INSUFFICIENT_NODES = "InsufficientNodes"
POLICY = "Policy"
# Nothing refuses: the decision ended before the cluster was tried, or its search was cut short.
UNDECIDED = "Undecided"
FILTER_ORDER = (
    LABEL_MISMATCH,
    CACHE_FOOTPRINT,
    CACHE_INCAPABLE,
    DELETING,
    NOT_READY,
    NO_GATEWAY,
    TAINTED,
    NO_POOLS,
    NO_POOL_MATCHES,
    INSUFFICIENT_NODES,
    POLICY,
    UNDECIDED,
)

# Why a replica is evicted.
CLUSTER_GONE = "ClusterGone"
DRAINED = "Drained"
TEMPLATE_CHANGED = "TemplateChanged"
PIN_MISMATCH = "PinMismatch"
DUPLICATE_IDENTITY = "DuplicateIdentity"
SCALED_DOWN = "ScaledDown"
TERMINATING = "Terminating"
PREEMPTED = "Preempted"
ROLLED_OUT = "RolledOut"
NOT_ADMITTED = "NotAdmitted"

# Why one pool does not take one engine.
SELECTOR_NO_MATCH = "SelectorNoMatch"
SELECTOR_ERROR = "SelectorError"
DEVICE_COUNT_SHORT = "DeviceCountShort"
DEVICE_CONTENTION = "DeviceContention"
SYNTHETIC_ONLY = "SyntheticOnly"
STRANDED = "Stranded"
TOO_MANY_DEVICES = "TooManyDevices"
DEVICE_MALFORMED = "DeviceMalformed"
DUPLICATE_POOL = "DuplicatePool"
OBSERVED_CAPACITY = "ObservedCapacity"
QUOTA_EXCEEDED = "QuotaExceeded"

# What the deployment has to do about a placement.
KEEP = "Keep"
CREATE = "Create"
UPDATE = "Update"
REPLACE = "Replace"

# States of a ledger entry.
RESERVED = "Reserved"
BOUND = "Bound"
RELEASING = "Releasing"

# Notes about replicas that are retained although something calls for a change.
DRIFTED = "Drifted"
RESIZE_BLOCKED = "ResizeBlocked"
REPLACEMENT_BLOCKED = "ReplacementBlocked"
CAPACITY_LOST = "CapacityLost"
EVICTED = "Evicted"
