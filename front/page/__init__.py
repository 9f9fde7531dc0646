"""The page at `/`: a picture of the fleet for browsers, read-only, which asks the front's own API with the token of its user.

Here are its files and the headers they are served with. They are the same for everybody and have no data: what is shown, and to whom, is
decided where the objects are served. The files are what browsers get: no build makes them, and nothing is loaded from elsewhere.
"""
