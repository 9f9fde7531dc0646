"""Carries out writes: what a client may send, and how it reaches an object's workflow.

A write is fully validated before it is sent. Its response is the object in the state that
its workflow then has.
"""
