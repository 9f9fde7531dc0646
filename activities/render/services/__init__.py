"""What the control cluster gets: a Service and an EndpointSlice per endpoint, an HTTPRoute per ModelService.

Routes of replicas on their own clusters are in `activities/render/routing`. Imports `objects`.
"""
