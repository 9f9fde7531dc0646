"""Clouds that cost nothing: servers on loopback ports that answer the official clients of a cloud, for tests and for a first run.

They are slow and fail in all the ways in which a cloud does. A fake cloud keeps no machines: a cluster that becomes ready in it can hand
out the API server of a testbed's control plane. Each cloud is a package. They import nothing of the product and nothing of the rest of the
testbed.
"""
