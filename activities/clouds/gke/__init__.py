"""Clusters on Google Kubernetes Engine.

`wanted` computes the desired objects without calls. `provider` creates them with
`clients` (the only module that makes calls), `failures`, `handlers` for each kind of
object, `audit` and `sweep`. This package may import the code that all clouds share.
"""
