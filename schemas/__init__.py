"""THE WIRE: every message that crosses a topic, as pydantic models, and its canonical bytes.

Must not import anything else of ours. `producers` builds observations from these models, `streams` validates with
them at the door, and `lockstep schema` prints them. The deterministic core never sees them: `streams.translate`
decodes the same bytes into the core's own types.
"""
