"""The data plane: a network namespace in which requests reach mock engines."""
