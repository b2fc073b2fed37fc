"""A run directory as data: metrics, checkpoints, status, events, discovery. The read side.

Imports neither torch nor the SDK, and no other room.
"""
