"""What every entity workflow has: object metadata, conditions, events, the reconcile loop, queries, activity options.

`entity` is the base class of the workflows of all kinds. A part of a workflow gets the `context` of its object, and other parts if it
needs them; it never sees the workflow, and `context.publish()` is its only call back.
Not here: anything that is true for one kind only.
"""
