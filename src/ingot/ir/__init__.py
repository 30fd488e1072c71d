"""The graph: nodes, building, checking, printing, parsing, interpreting."""
