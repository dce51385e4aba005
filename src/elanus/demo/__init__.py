"""The demo: the main job of a vector database on real data, through an unmodified client.

It is a program about the server, not a part of it: it starts ``elanus serve`` as a process of its
own and talks to it with `pymilvus` only, as an application would. Each step checks what came back
against an exact answer, and the demo fails when something is wrong.
"""
