"""CloudCluster: the lifecycle of one InferenceCluster's objects at a cloud provider.

The workflow creates these objects, keeps them as planned and deletes them.

- `workflow`: signals, queries and the main loop.
- `converge`: create and update the planned objects. `teardown`: delete all objects.
- `graph`: pure decisions which objects may be worked on now, from the carried `state`.
- `failures`: the meaning of errors and the delay before the next attempt.
- `calls`: the activities and their options.
- `shown`: reports to the InferenceCluster, query results and Temporal UI details.
"""
