"""`python -m ordercast` is the command line."""

from ordercast.cli.main import main

main()
