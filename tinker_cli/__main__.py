"""`python -m tinker_cli`: the same program as the `tinker` script."""

from tinker_cli.app import main

if __name__ == "__main__":
    main()
