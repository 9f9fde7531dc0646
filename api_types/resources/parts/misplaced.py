"""Hints for users who write an engine or pod field in the wrong place.

People write these fields where Kubernetes has them, or on another level of the
template.
"""

_TEMPLATE = "spec.template.spec"
DRAIN = "unknown field; set how an engine's pods stop in engines[].drain"
PROBES = (
    "unknown field; set the time limit for loading and the liveness check in "
    "engines[].members[].probes"
)
PLATFORM = (
    "unknown field; only the platform sets it, in the podPolicy of the nodes' "
    "InferenceClass"
)
_ENGINE = (
    f"unknown field; it belongs to an engine: write it in {_TEMPLATE}.engines[], "
    "next to members"
)
_REPLICA = (
    f"unknown field; it belongs to a replica: write it in {_TEMPLATE}, next to engines"
)
_SERVING = f"unknown field; it belongs to a replica: write it in {_TEMPLATE}.serving"
_OF_ENGINES = ("adapters", "copies", "dataParallel", "profile", "spanPools", "topology")
_OF_SERVING = ("flowControl", "prefixCache")
_OF_CLASSES = ("podPolicy", "shmSize")

IN_DEPLOYMENT = {
    **dict.fromkeys(_OF_ENGINES, _ENGINE),
    **dict.fromkeys(_OF_SERVING, _SERVING),
    **dict.fromkeys(_OF_CLASSES, PLATFORM),
    "disruption": _REPLICA,
    "probes": PROBES,
}
IN_DRAIN_BUDGET = dict.fromkeys(("preStopSeconds", "graceSeconds"), DRAIN)
IN_TEMPLATE = {
    **dict.fromkeys(_OF_ENGINES, _ENGINE),
    "drain": DRAIN,
    "probes": PROBES,
    **dict.fromkeys(_OF_CLASSES, PLATFORM),
}
IN_ENGINE = {
    "disruption": _REPLICA,
    "modelCacheRef": _REPLICA,
    **dict.fromkeys(_OF_SERVING, _SERVING),
    "probes": PROBES,
    **dict.fromkeys(_OF_CLASSES, PLATFORM),
}
IN_MEMBER = {**IN_ENGINE, **dict.fromkeys(_OF_ENGINES, _ENGINE), "drain": DRAIN}

VALUES = {
    ("source", "GCS"): (
        "read a GCS bucket with source S3: set s3.endpoint to "
        "https://storage.googleapis.com, and use an HMAC key"
    ),
}
"""Hints for common values that a field does not accept, by field and value."""
