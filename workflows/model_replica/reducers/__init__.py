"""Apply messages and results to the state of a ModelReplica, without clock and I/O.

`decisions` decides from the state; the parts of the workflow carry decisions out and
return results to these functions.
"""
