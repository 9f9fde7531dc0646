"""Routing to the pods of a replica on its own cluster.

This package renders the HTTPRoute, the InferencePool, the endpoint picker and the
monitors. Routes of ModelServices on the control cluster belong to `activities/routing`.
Imports `engines`, `objects` and `inputs`.
"""
