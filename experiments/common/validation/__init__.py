"""How far the simulator can be trusted: predicted against real times that its calibration has not seen."""
