"""Conversations as the model sees them: tokens, weights, roles; what is lost; parity with HF.

`shown` renders through the very renderer that trains, `faults` says what is wrong with a row,
`compare` holds it against the tokenizer's own template, `stats` counts, `views` draws.
"""
