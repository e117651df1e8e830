"""Transfers in place: transports, where transfers go, and what every rank then does in order."""

from .orders import PLACEMENTS, choices, place_transfers
from .plan import Plan
from .transfers import Transfers, find_transfers
from .transport import TRANSPORTS, Transport

__all__ = ["PLACEMENTS", "TRANSPORTS", "Plan", "Transfers", "Transport", "choices", "find_transfers", "place_transfers"]
