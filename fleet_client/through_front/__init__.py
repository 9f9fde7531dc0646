"""Access to objects through the front, for users who cannot access Temporal.

The front (`modelplane-front`) is a Kubernetes API, for which the user has a token. Its
responses are checked before other code uses them. Not here: how commands use objects
(`client`). May import `temporal` for the types that both ways share, `refs` and
`configuration`.
"""
