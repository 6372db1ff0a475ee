"""Training: the step, the engines that run it, the schedule and the epoch loop."""
