"""CloudCluster: what one InferenceCluster has at its cloud, from its creation until nothing is left of it.

`workflow` has signals, queries and the loop. `converge` makes what is wanted, `teardown` deletes it; which objects may be worked on now is
decided by `graph`, pure, from the carried `state`. What failed and when it is tried again is in `failures`, the activities and their
options in `calls`, what others are told and people are shown in `shown`. Spec: provisioning.md 3, 4.1 and 9.
"""
