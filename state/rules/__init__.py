"""Leaf arithmetic on integers and arrays. Rules don't know each other; `state.cycle` calls them."""
