"""Who calls, and what they may do: sign-in, the guard's decision, and the audit log of both."""
