"""Interpret objects from the API server for their owners, with pure functions.

`read_*` reduces one object to a small record. `observe_*` combines the records of one
owner. This package imports `cluster_objects` for kinds and ownership. It calls no
cluster and keeps no state (`clusters/watch` does both).
"""
