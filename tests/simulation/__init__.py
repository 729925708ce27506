"""Seeded simulation of the whole pipeline with faults, and the auditor that watches it.

`simulation.Simulation(seed).run()` is one run; `run` is the command line; `canary` holds faults
planted in the product that the auditor must find. Later issues extend `workload` (what users do),
`chaos` (what goes wrong) and the `audit_*` modules (what must hold).
"""
