"""From objects as the API server sends them to what their owner should know: pure functions.

`read_*` reduces one object to a small record; `observe_*` combines the records of one owner. Imports `cluster_objects` for kinds and
ownership; calls no cluster and keeps no state (`clusters/watch` does both).
"""
