"""A ModelCache on one cluster: the volume claim, and the Job with the program that fills it. Imports `objects` and `inputs` only."""
