"""The simulator: the roles' own code in one process, on virtual time, under seeded faults."""
