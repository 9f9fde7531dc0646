"""Payloads, as Temporal carries them: how large they may be, how large ones are packed, and what stands for one that cannot be decrypted.

Not here: what is in them (`messages`), and encryption itself (`client/temporal`).
"""
