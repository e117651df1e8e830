"""What runs: stages, ranks and the driver. Needs torch."""
