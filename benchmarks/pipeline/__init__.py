"""What the data pipeline costs beyond the plain work: the figures of docs/pipeline-benchmarks.md.

Most modules measure one kind of job beside the same work done without Elanus, in turns and in one process.
What is quoted is the ratio of their medians, which hardly depends on the machine.
"""
