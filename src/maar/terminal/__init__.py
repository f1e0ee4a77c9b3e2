"""The terminal output of commands: the one table, the one clock, progress. Imports only `core`."""
