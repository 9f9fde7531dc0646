"""How requests reach the pods of a replica on its own cluster: HTTPRoute, InferencePool, endpoint picker, monitors.

Not here: routes of ModelServices on the control cluster (`activities/routing`). Imports `engines`, `objects` and `inputs`.
"""
