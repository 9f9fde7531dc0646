"""ModelService: a stable address for endpoints of its namespace.

It is an HTTPRoute on the control cluster.
"""
