"""The connection to Temporal: payload encryption, the objects of the fleet as workflows, links into its UI."""
