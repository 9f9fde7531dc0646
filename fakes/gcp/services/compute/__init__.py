"""Compute Engine over REST: networks and the objects in them.

`service` is the entry.
"""
