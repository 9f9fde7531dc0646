"""The workflows: one package or module per kind, with its state and the order of its steps.

No I/O, no wall clock, no randomness of its own: calls to outside systems are activities, long computations are local activities. Nothing
here imports a cloud, Kubernetes or Helm SDK.
"""
