"""Watch a cluster: current copies of selections, reachability, and signals to owners.

`clusters/watch` and `routing` define the selections and the observations for owners.
This package imports `cluster_objects`.
"""
