"""Capacity adapters: what is free on a cluster, mapped from the objects of its schedulers to one model.

Everything here is pure: objects in, a snapshot out. The cluster's watch follows the objects and sends the snapshot. A new adapter is one
module and one row in `adapters.py`.
"""
