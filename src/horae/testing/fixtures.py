"""The pytest fixture `system`; import it where you need it, so that it cannot hide a fixture of your own."""

from collections.abc import Iterator

import pytest

from horae.testing.virtual_system import System


@pytest.fixture
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    """A system in virtual time, for the application of a fixture `horae_app` or of `system.use(app)`."""
    with System() as running:
        if (app := _app_of(request)) is not None:
            running.use(app)  # type: ignore[arg-type]
        yield running


def _app_of(request: pytest.FixtureRequest) -> object | None:
    try:
        return request.getfixturevalue("horae_app")  # type: ignore[no-any-return]
    except pytest.FixtureLookupError as exc:
        if exc.argname == "horae_app":
            return None
        raise
