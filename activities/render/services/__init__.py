"""The objects of endpoints and services on the control cluster.

Each endpoint has a Service and an EndpointSlice. Each ModelService has an HTTPRoute and
a Middleware. Routes of replicas on their own clusters are in
`activities/render/routing`. Imports `objects`.
"""
