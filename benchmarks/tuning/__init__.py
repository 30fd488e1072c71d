"""What tuning gains over the default schedules: the comparison's cases, and twenty of odd shapes."""
