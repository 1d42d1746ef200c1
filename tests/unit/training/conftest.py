import pytest

import tiny


@pytest.fixture
def runtime():
    """A maker of runtime sections: a small CPU one, with changes."""

    def make(**changes):
        return tiny.runtime(**{"num_threads": None, **changes})

    return make
