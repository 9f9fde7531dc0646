"""The testbed and the worker process of this machine."""
