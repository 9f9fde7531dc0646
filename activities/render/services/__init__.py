"""What the control cluster gets: a Service and an EndpointSlice per endpoint, an HTTPRoute per ModelService, its Middleware.

Routes of replicas on their own clusters are in `activities/render/routing`. Imports `objects`.
"""
