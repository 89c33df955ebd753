"""Run kept with `python -m kept`."""

from kept.cli.entry import main

if __name__ == "__main__":
    main()
