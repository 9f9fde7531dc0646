"""Capacity adapters: what is really free on a cluster, mapped from its own objects to one shape.

Everything here is pure: objects in, a snapshot out. The cluster's watch follows the objects and sends the snapshot on.
"""
