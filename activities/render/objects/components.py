"""The values of the label `app.kubernetes.io/component`: the purpose of an object."""

ENGINE = "engine"
DEVICE_CLAIM = "device-claim"
POD_GROUP = "gang"
PICKER = "epp"
ROUTING = "routing"
MONITORING = "monitoring"
SECRET = "secret"  # noqa: S105 -- the value of a label
CACHE = "cache"
