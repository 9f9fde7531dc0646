"""The hands: what touches the world outside Temporal.

One module per outside system, each a thin, repeatable shell over a Protocol, and the pure renderers of what is applied. Only `clients/` and
`providers/` may import a cloud, Kubernetes or Helm SDK: workflows import from here.
"""
