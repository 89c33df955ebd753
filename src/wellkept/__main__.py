"""Run kept with `python -m wellkept`."""

from wellkept.cli.entry import main

if __name__ == "__main__":
    main()
