"""Lessons: one-off experiments that answer with readings (driver `once`), one module a lesson. Each module's docstring lists what it reads."""
