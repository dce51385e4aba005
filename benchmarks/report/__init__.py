"""From results to the page: which figures are shown, which ratios are expected, how both are written.

Everything here is a pure function of a results file, so that the page can claim nothing that a command did
not measure.
"""
