"""What is equal for every call of every service: who calls, which faults it meets, what is recorded of it. Imports no service."""
