"""`python -m ingot` is the command `ingot`."""

from ingot.cli.main import main

main()
