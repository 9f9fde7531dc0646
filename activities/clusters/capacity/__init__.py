"""Capacity adapters: map the objects of a cluster's schedulers to free capacity.

All code here is pure: objects in, a snapshot out. The cluster's watch follows the
objects and sends the snapshot. A new adapter is one module and one row in
`adapters.py`.
"""
