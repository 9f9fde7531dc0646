"""Plans over manifests or a copy of the live fleet, and questions such as headroom.

The package uses the same scheduling cycle as the live scheduler. `client/output` prints
the answers.
"""
