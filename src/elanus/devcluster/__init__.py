"""The services of a cluster on this machine, for development and tests.

An Elanus cluster depends on etcd, NATS JetStream, an S3 store and Spark. This package starts real ones on
free loopback ports in one directory, waits until each answers, and ends exactly what it started. It is
not a deployment: one member each, passwords in a file, everything on one disk.
"""
