"""`python -m tinker_cli.trainer`: reads one launch request on stdin, answers on stdout, trains."""

from __future__ import annotations

from tinker_cli.trainer.child import run_child

if __name__ == "__main__":
    run_child()
