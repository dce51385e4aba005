"""One interface per role, the values in its calls, and the marks that say how a call may be made."""
