"""The codes in decisions: filters, eviction reasons, fit codes, actions and states.

The codes are public: conditions, `plan -o json`, events and metrics show them.
"""

# Cluster filters in the order in which they run. The first filter that a cluster fails
# is its reason.
LABEL_MISMATCH = "LabelMismatch"
CACHE_FOOTPRINT = "CacheFootprint"
CACHE_INCAPABLE = "CacheIncapable"
DELETING = "Deleting"
NOT_READY = "NotReady"
NO_GATEWAY = "NoGateway"
TAINTED = "Tainted"
FEATURE_MISSING = "FeatureMissing"
NO_POOLS = "NoPools"
NO_POOL_MATCHES = "NoPoolMatches"
INSUFFICIENT_NODES = "InsufficientNodes"
POLICY = "Policy"
# No filter failed: the decision ended before the cluster was tried, or its search was
# cut short.
UNDECIDED = "Undecided"
FILTER_ORDER = (
    LABEL_MISMATCH,
    CACHE_FOOTPRINT,
    CACHE_INCAPABLE,
    DELETING,
    NOT_READY,
    NO_GATEWAY,
    TAINTED,
    FEATURE_MISSING,
    NO_POOLS,
    NO_POOL_MATCHES,
    INSUFFICIENT_NODES,
    POLICY,
    UNDECIDED,
)

# Reasons for an eviction.
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

# Reasons why an engine does not fit a pool.
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

# The deployment's actions for a placement.
KEEP = "Keep"
CREATE = "Create"
UPDATE = "Update"
REPLACE = "Replace"

# States of a ledger entry.
RESERVED = "Reserved"
BOUND = "Bound"
RELEASING = "Releasing"

# Notes about replicas that are kept although a change is due.
DRIFTED = "Drifted"
RESIZE_BLOCKED = "ResizeBlocked"
REPLACEMENT_BLOCKED = "ReplacementBlocked"
CAPACITY_LOST = "CapacityLost"
EVICTED = "Evicted"
