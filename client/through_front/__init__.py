"""Objects through the front (`modelplane-front`), for users who have a token for it and no access to Temporal.

The front is a Kubernetes API; what it answers is checked before anything uses it. Not here: what commands do with objects (`follow`).
May import `temporal` for the types that both ways share, `refs` and `configuration`.
"""
