"""What is read: the present state of every object, fed by the changes that workflows publish to visibility."""
