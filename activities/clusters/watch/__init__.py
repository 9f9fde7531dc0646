"""The watch over one cluster: list once, follow changes, and signal owners.

Objects are never polled. While nothing changes, the watch of a cluster costs a few idle
connections and one small request every few seconds. `observe` interprets objects for
their owners.
"""
