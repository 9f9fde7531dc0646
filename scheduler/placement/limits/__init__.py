"""Limits on placement in addition to hardware.

These are quotas, limits of queueing systems, reservations, and devices that are counted
individually. Each limit is charged and checked over a `FleetOverlay`. `filters`
determines which pools match at all.
"""
