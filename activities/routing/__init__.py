"""What runs on the control cluster: backends of endpoints, routes of services, the gateway, and the watch over all of them.

Which objects those are is in `render/services` and `render/gateway`. Imports `watching`, `observe`, `cluster_objects` and `render`.
"""
