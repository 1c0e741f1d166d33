"""``python -m evergrad``: the ``evergrad`` command."""

from evergrad.cli.main import main

if __name__ == "__main__":
    main(prog_name="evergrad")
