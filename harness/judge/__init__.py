"""Turns records into verdicts. Pure: it reads a plan and its records, and returns values.

Must not know a clock, the results folder or any framework; numpy and scipy are all that it needs, so a bundle can be judged anywhere.

    judge(plan, records, bundle.load_proof)         # everything there is to say of a run
    settled(plan, "graph-speedup.b32", records)     # would more rounds of this contrast tell more?
    running_estimate(plan, "graph-speedup.b32", records)
"""

from harness.judge.settling import running_estimate, settled
from harness.judge.verdicts import judge

__all__ = ["judge", "running_estimate", "settled"]
