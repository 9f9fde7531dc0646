"""Authentication of users and authorization of their requests."""
