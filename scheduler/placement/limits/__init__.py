"""What may be placed beside what hardware allows: quotas, the limits of queueing systems, reservations, and devices counted one by one.

Each limit is charged and checked over a `FleetOverlay`. Not here: which pools match at all (`filters`).
"""
