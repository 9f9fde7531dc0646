"""What a user who writes a field of engine pods at another place is told: where it belongs.

People look for these fields where Kubernetes has them, or on another level of the template.
"""

_TEMPLATE = "spec.template.spec"
DRAIN = "unknown field; how the pods of an engine stop is in engines[].drain"
PROBES = "unknown field; how long an engine may load, and when it is hung, is in engines[].members[].probes"
PLATFORM = "unknown field; only the platform grants it, in the podPolicy of the InferenceClass of the nodes"
_ENGINE = f"unknown field; it is of an engine: write it in {_TEMPLATE}.engines[], beside members"
_REPLICA = f"unknown field; it is of a replica: write it in {_TEMPLATE}, beside engines"
_SERVING = f"unknown field; it is of a replica: write it in {_TEMPLATE}.serving"
_OF_ENGINES = ("adapters", "copies", "dataParallel", "spanPools", "topology")
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
IN_TEMPLATE = {**dict.fromkeys(_OF_ENGINES, _ENGINE), "drain": DRAIN, "probes": PROBES, **dict.fromkeys(_OF_CLASSES, PLATFORM)}
IN_ENGINE = {
    "disruption": _REPLICA,
    "modelCacheRef": _REPLICA,
    **dict.fromkeys(_OF_SERVING, _SERVING),
    "probes": PROBES,
    **dict.fromkeys(_OF_CLASSES, PLATFORM),
}
IN_MEMBER = {**IN_ENGINE, **dict.fromkeys(_OF_ENGINES, _ENGINE), "drain": DRAIN}

VALUES = {
    ("source", "GCS"): "a bucket of GCS is read with source S3, from s3.endpoint https://storage.googleapis.com with an HMAC key",
}
"""A value that is none of a field's, by the field and in place of which other one: people look for it by the name of what they have."""
