"""The standard library of schedules, as resources: ``*.pipe``."""
