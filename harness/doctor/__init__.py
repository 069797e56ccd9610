"""Is this machine fit to be measured? Facts are read in one place each, and one pure function a check turns them into a finding. It changes no setting."""

USUAL_NOISE_S = 10.0
"""How long the machine's noise is watched unless it is said otherwise."""
