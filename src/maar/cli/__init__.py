"""The command line: one file a command, each with `main(argv) -> int`."""
