"""Temporal: the connection, payload encryption, objects as workflows, UI links.

The worker uses the connection and the encryption too. Not here: how commands follow a
change (`client/follow`). May import `refs`.
"""
