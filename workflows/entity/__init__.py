"""The parts that all entity workflows share.

These are object metadata, conditions, events, the reconcile loop, queries and activity
options. `entity` contains the base class of the workflows of all kinds. A part of a
workflow receives the `context` of its object, and other parts if necessary. It never
receives the workflow, and `context.publish()` is its only callback.

Code for a single kind does not belong here.
"""
