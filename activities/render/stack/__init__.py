"""The serving stack of a cluster: which releases with which values, which objects beside them, and the order of it all.

Pure, from the record of a stack (`ServingStackSpec`) to plain values; `activities/stack` carries it out, and the InferenceCluster decides
when. Spec: stack-and-routing.md 2. Not here: whether something is installed or ready, and what charts contain.
"""
