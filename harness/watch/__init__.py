"""Ways to watch a run from elsewhere while it goes on: a Prometheus endpoint and TensorBoard logs. They are told what the display is told, and change nothing."""
