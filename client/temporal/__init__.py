"""Temporal: the connection, payload encryption, objects as workflows, links to the Temporal UI.

The worker uses the connection and the encryption too. Not here: what commands do with an object (`follow`). May import `refs`.
"""
