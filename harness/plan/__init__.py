"""From what is written in conf/ to what must be measured, and in which order. Knows no clock, no framework, no results folder."""
