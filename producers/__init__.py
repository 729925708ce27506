"""INBOUND: the world to the intake topics.

Informers list and watch the API server, device agents read NVML, and `observe` turns what they find
into observations that `publisher` packs into messages. `simulated` is a cluster in memory. Must not
know what becomes of an observation: nothing here imports the core or the roles.
"""
