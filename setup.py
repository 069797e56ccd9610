"""Refuses to build a wheel; everything else about the distribution is in pyproject.toml."""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class RefusedWheel(bdist_wheel):
    """An editable installation asks this command for names only; running it means that a wheel is wanted."""

    def run(self) -> None:
        """Say why there is no wheel."""
        raise SystemExit(
            "speedproof is run from a clone, since conf/ and results/ belong to it: no wheel is built. Clone the repository and run 'make setup' "
            "(or 'pip install --constraint constraints.txt --editable .')."
        )


setup(cmdclass={"bdist_wheel": RefusedWheel})
