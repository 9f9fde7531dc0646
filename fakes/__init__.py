"""Clouds that cost nothing: servers on loopback ports that answer the official clients of a cloud.

Tests use them, and `modelplane up --cloud fake` starts them for a first run. They are slow
and fail in all the ways in which a cloud does. A fake cloud runs no machines; a cluster that
becomes ready in it can have the API server of a testbed's control plane. Each cloud is a
package. The fakes import nothing else of the project, and the wheel does not contain them.

`inference_extension/` is a Go program that takes the place of Envoy AI Gateway on the testbed.
"""
