"""Activities on the control cluster.

They apply backends of endpoints, routes of services and the gateway, and watch all of
them. `render/services` and `render/gateway` compute the objects. Imports `watching`,
`observe`, `cluster_objects` and `render`.
"""
