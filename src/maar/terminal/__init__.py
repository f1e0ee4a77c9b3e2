"""What commands show in a terminal: the one table, the one clock, progress. Imports only `core`."""
