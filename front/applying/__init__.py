"""Server-side apply: merges a manager's write and computes the owners of fields.

All functions are pure and work on JSON trees. They know nothing of requests, workflows
or time. `annotation` stores the owners.
"""
