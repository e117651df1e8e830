"""A small GPT and a text that every CPython carries: something real to train."""
