"""Client library of the fleet: access to its objects at Temporal or through the front.

The worker, the front and the command line use it. It contains the connection to
Temporal with payload encryption, references to objects, requests to their workflows,
the client of the front's Kubernetes API, explanations of placements, the next steps for
reasons of conditions, and the errors of all of these.

Not here: text output, options and exit codes (`client`), serving HTTP (`front`).
"""
