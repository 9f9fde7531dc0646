"""The serving stack of a cluster: releases, values, objects, and order of steps.

The package is pure. It converts the record of a stack (`ServingStackSpec`) into plain
values. `activities/stack` applies them, and the InferenceCluster decides when. Whether
something is installed or ready does not belong here.
"""
