"""The build is what is installed; a source tree is none."""

from importlib.metadata import version

from services.adapters.system.build import package_version


def test_an_installed_package_has_its_version_and_another_none() -> None:
    assert package_version("pytest") == version("pytest")
    assert package_version("no-such-package-of-anybody") == ""
