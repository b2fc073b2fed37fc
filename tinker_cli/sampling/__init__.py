"""Prompts -> completions: the renderer's prompt and stops, many requests in flight, order kept.

`options` checks what is asked for; `framing` is what a run's loop puts around a prompt; `prompts`
reads what to ask; `ask` asks one model, `compare` several; `flight` keeps many requests going;
`stream` turns tokens into text as they come; `answers_file` is a file of answers that can be gone
on with; `chat` holds a conversation. Knows the SDK's sampling client; knows nothing of runs.
"""
