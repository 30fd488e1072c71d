"""What stays on disk when a process ends: object code, and results of measuring.

In order of reading: `entries` (what a file holds), `directory` (which directories are trusted), `store` (files by key,
bounded), `identity` (what code depends on besides its text), `process` (the store of this process), `bundles` (a whole
cache as one file). [docs/cache.md] tells users about it.
"""
