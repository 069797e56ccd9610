"""The instrument: it plans, measures, judges and reports, and knows nothing of what is being measured."""
