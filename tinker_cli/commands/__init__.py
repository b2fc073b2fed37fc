"""One file a command: parse the arguments, call one room, print. No logic lives here."""
