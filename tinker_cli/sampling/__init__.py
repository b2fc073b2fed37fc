"""Prompts -> completions: the renderer's prompt and stops, many requests in flight, order kept.

`options` checks what is asked for, `prompts` reads what to ask, `ask` asks. Knows the SDK's
sampling client; knows nothing of runs or of what is printed.
"""
