"""The workloads of the performance page, run by `lockstep bench NAME`. Ratios side by side, never timed tests."""
