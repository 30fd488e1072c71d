"""Rewrites of graphs, one pass per file, and the pipeline that orders them."""
