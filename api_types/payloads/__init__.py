"""Payloads in Temporal: their size limits, packing, and undecryptable payloads.

Not here: the content of payloads (`messages`), and encryption itself
(`fleet_client/temporal`).
"""
