"""``python -m piper_dsl``: the command line."""

from .cli.main import main

main()
