"""The two protocols: gRPC, and HTTP with JSON.

They turn requests into calls of services, and errors into the clients' form.
"""
