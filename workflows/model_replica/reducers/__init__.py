"""How messages, and results of what a ModelReplica ordered, change its state: pure, without clock and I/O, each change in place.

What is decided from the state is in `decisions`; the parts of the workflow carry the decisions out, and give results back to here.
"""
