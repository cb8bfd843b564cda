"""Half an hour at a constant load: does anything grow that should not? `tox -e soak`, or `python -m tests.soak`."""
