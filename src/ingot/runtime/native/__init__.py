"""The part of the runtime that is machine code: the pool of memory, and the launcher that a call goes through."""
