"""`python -m maar` is the same program as `maar`."""

from maar.cli.main import entry

if __name__ == "__main__":
    entry()
