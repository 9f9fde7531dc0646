"""Scaling from outside: what autoscalers and other programs call, besides the `scale` subresource of the Kubernetes API.

A webhook whose requests are signed, numbers that are told or scraped, and read, KEDA's external scaler (gRPC), and KEDA's CloudEvents. Each
request becomes a signal of the deployment's workflow, or is answered from memory. Not here: when to scale, which is the caller's to say.
"""
