"""A ModelCache on one cluster: the volume claim and the Job that fills it."""
