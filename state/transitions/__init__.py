"""What one kind of observation changes: `on_<observation>(trial, seen)`. Called by `state.machine` only."""
