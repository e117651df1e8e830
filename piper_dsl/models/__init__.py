"""A whole ``nn.Module`` cut into stages. Needs torch; knows neither schedules nor targets."""
