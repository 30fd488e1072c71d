"""What stays on disk when a process ends: object code, and results of measuring.

In: object code with all that it was made from. Out: the same in another process, or nothing. What always holds: what is
given out is what would be made again; a fault of the disk, or of another process, costs time and nothing else; nothing
comes from a directory that other users can write to. docs/cache.md tells users about it.

In order of reading: `entries` (what a file holds), `directory` (which directories are trusted), `store` (files by key,
bounded), `identity` (what code depends on besides its text), `process` (the store of this process), `bundles` (a whole
cache as one file).
"""
