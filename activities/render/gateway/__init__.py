"""What the control cluster gets for the InferenceGateway: Helm releases with their values, and the Gateway with its class.

Pure, as everything in `render`. Imports `objects`.
"""
