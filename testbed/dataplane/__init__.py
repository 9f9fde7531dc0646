"""The data plane: a network namespace in which requests travel through a gateway to mock engines."""
