"""The workflows: a package per kind (InferenceClass is one module).

Each package has the state of its kind and the order of its steps. The kinds share
`entity/`. `registry` lists the workflows with their sandbox, and `runner` guards it in
workers.

Workflow code does no I/O, and has no wall clock and no other source of randomness.
Calls to outside systems are activities, and long computations are local activities.
Nothing here imports a cloud, Kubernetes or Helm SDK.
"""
