"""Start, find, signal and query entities.

All calls use the worker's own Temporal client: a local activity for a single signal, an
ordinary one for many. This adds fewer events to a history than signals from workflow
code. A repeated message has no effect: it contains a whole value and, if the order
matters, a request id, a sequence number or a uid.
"""
