"""What is measured, and how; never part of the test run. `make bench` runs `benchmarks.bounds`."""

from maar.core.process import prepare

prepare()  # as the command line does, before torch is loaded
