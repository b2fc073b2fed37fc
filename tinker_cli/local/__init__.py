"""The embedded engine: a Tinker-compatible server that trains and samples a real model here.

From the wire inwards: `server`, `routes` and `catalogue` (HTTP), `sessions` (what clients have
created), `training` and `sampling` (operations), `protocol` (bytes <-> numpy), `scheduler` and
`futures` (order, turns, one compute worker), `learner` and `losses` (forward, backward, Adam),
`sampler`, `lanes`, `decoder`, `layers`, `drawing`, `scoring` and `waves` (batched decoding),
`lora` (a base model and its adapters), `store` and `exports` (checkpoints on disk). It knows
nothing of specs, runs or terminals, and is reached over HTTP only.
"""
