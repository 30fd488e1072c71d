"""What every other layer stands on: errors, data types, sizes, value types, configuration."""
