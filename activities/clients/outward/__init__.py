"""Guards for everything that the worker connects to: which addresses it may reach."""
