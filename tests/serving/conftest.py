import pytest

from server import BINARY, DEMO_MODEL, SMALL_MODEL, Server


def pytest_collection_modifyitems(items):
    if not BINARY.exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"{BINARY} is not built"))


@pytest.fixture(scope="session")
def demo_model():
    if not DEMO_MODEL.exists():
        pytest.skip("the demo model is not cached (scripts/demo_model)")
    return DEMO_MODEL


@pytest.fixture(scope="session")
def small_model():
    if not SMALL_MODEL.exists():
        pytest.skip(f"{SMALL_MODEL} is absent (SHOAL_SHARED)")
    return SMALL_MODEL


@pytest.fixture(scope="session")
def demo(demo_model):
    """The demo model, served for all tests that only ask."""
    with Server(demo_model, "--served-model-name", "demo") as server:
        yield server


@pytest.fixture(scope="session")
def small(small_model):
    with Server(small_model, "--served-model-name", "small") as server:
        yield server
