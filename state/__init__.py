"""THE CORE: State, and the two functions that move it. No pydantic, Kafka, Kubernetes, clock or log in here.

`machine.decide(state, record)` reads and returns a Decision; `machine.apply(state, decision)` is the only writer.
Called by `streams.decider` (live), `streams.verify` (replay), and through them by everything else.
"""
