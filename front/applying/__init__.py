"""Server-side apply: which manager owns which fields of an object, and what its next write makes of both.

Pure functions over trees of JSON: nothing here knows requests, workflows or the time. Where owners are kept is in `annotation`.
"""
