"""The things measured: nets, training steps, input pipelines and lessons. Only this package and `harness.measure.runtime` import frameworks."""
