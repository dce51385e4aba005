"""Where a server gives: one dimension after the other grows until something gives, or a bound is met.

=============  =======================================================================================
`figures`      the results, as values
`growth`       the steps of one dimension, its time budget, and how it ended: no server in it
`server`       a server that is looked at, stopped and started again
`catalog`      collections, loaded collections and vchannels
`writes`       partitions with a flush, and deletes
`connections`  client connections
`segments`     sealed segments; `sealed` writes them while the server is stopped
`measure`      which dimensions there are, their steps and budgets
=============  =======================================================================================
"""
