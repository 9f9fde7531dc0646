"""The data of the web page that no API object has.

These are history, the health of Temporal, the use of capacity, and explanations of
placements. They belong to the page alone, and users see the parts for which they have
rights. Samples of the history are numbers without names, and stay in the memory of this
front.
"""
