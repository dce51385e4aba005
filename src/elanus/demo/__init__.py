"""The demo: the main task of a vector database on real data, through an unmodified client.

It is a program that uses the server, not a part of it: it starts ``elanus serve`` as a separate
process and accesses it only with `pymilvus`, as an application would. Each step checks the answer
against an exact one, and the demo fails when something is wrong.
"""
