"""A cluster in memory for `simulate`, `demo`, `bench` and the fault simulation.

`cluster.Cluster` is API server, kubelet and controllers; `informers.SimulatedInformers` turns what happens
in it into intake messages. Must not know the core, or how messages travel.
"""
