"""Which operations become one kernel."""
