"""A node for pods that run real programs: their containers, Services and DNS names."""
