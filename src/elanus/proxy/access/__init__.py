"""Access to a proxy: the caller of each operation, sign-in, the guard's decision, and the audit log."""
