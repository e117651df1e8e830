"""Other tools' files, in and out."""

from .torch_csv import CSV_SUFFIX, read_csv, write_csv

__all__ = ["CSV_SUFFIX", "read_csv", "write_csv"]
