"""The testbed and the worker process of this machine. The only package of the client that imports `testbed`."""
