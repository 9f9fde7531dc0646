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

IN_DEPLOYMENT = {**dict.fromkeys(_OF_ENGINES, _ENGINE), "disruption": _REPLICA, "probes": PROBES, "podPolicy": PLATFORM}
IN_DRAIN_BUDGET = dict.fromkeys(("preStopSeconds", "graceSeconds"), DRAIN)
IN_TEMPLATE = {**dict.fromkeys(_OF_ENGINES, _ENGINE), "drain": DRAIN, "probes": PROBES, "podPolicy": PLATFORM}
IN_ENGINE = {"disruption": _REPLICA, "modelCacheRef": _REPLICA, "flowControl": _SERVING, "probes": PROBES, "podPolicy": PLATFORM}
IN_MEMBER = {**IN_ENGINE, **dict.fromkeys(_OF_ENGINES, _ENGINE), "drain": DRAIN}
