"""How entities start, find, signal and query one another.

Everything goes through the worker's own Temporal client: from local activities for one signal, from ordinary ones for many. That makes
fewer events in a history than signals that workflow code sends. A repeat changes nothing: a message carries a whole value, and where
order matters a request id, a sequence number or a uid.
"""
