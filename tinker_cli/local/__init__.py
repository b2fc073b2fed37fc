"""The embedded engine: a Tinker-compatible server that trains and samples a real model here.

Rooms, from the wire inwards: `server` (routes), `sessions` (what a client has created),
`protocol` (bytes <-> numpy), `scheduler` (order, futures, one compute worker), `learner`
(forward, backward, Adam), `losses`, `sampler` (batched decoding), `lora` (a base model and its
adapters), `store` (checkpoints on disk). It knows nothing of specs, runs or terminals, and is
reached over HTTP only.
"""
