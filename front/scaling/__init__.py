"""Interfaces for autoscalers, in addition to the `scale` subresource.

These are a webhook with signed requests, metrics that are pushed or scraped, KEDA's
external scaler (gRPC), and a receiver of KEDA's CloudEvents. Each request is answered
from memory, or becomes a signal of the deployment's workflow. The callers decide when
to scale.
"""
