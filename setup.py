"""What pyproject.toml can't say: the folder `templates/` ships as `tinker_cli/templates`."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["tinker_cli*"]), "tinker_cli.templates"],
    package_dir={"tinker_cli.templates": "templates"},
)
