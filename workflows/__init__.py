"""The workflows: a package per kind (InferenceClass is one module), with its state and the order of its steps.

`entity/` is what the kinds share, `registry` lists them with their sandbox, and `runner` is the guard that workers run them behind.

No I/O, no wall clock, no randomness of its own: calls to outside systems are activities, long computations are local activities. Nothing
here imports a cloud, Kubernetes or Helm SDK.
"""
