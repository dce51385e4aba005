"""The cost of the data pipeline beyond the plain work: the figures of docs/pipeline-benchmarks.md.

Most modules measure one kind of job against the same work done without Elanus, in turns and in one process.
The ratio of their medians is quoted, which hardly depends on the machine.
"""
