"""`python -m ringfaust` does the same as `ringfaust`."""

from ringfaust.cli.main import main

if __name__ == "__main__":
    main(prog_name="ringfaust")
