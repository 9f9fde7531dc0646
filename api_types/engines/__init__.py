"""What Modelplane knows of inference engines: their profiles, their flags, their mistakes.

Admission and rendering share this package. It reads the image, the command line and the
environment of an engine, and never changes them. The fields of a manifest belong to
`api_types/resources/`, and rendered objects to `activities/render/`.
"""
