"""The pace of the machine, and what is multiplied by it."""

import pytest

from ssfx.calibration import cpu_speed as yardstick


def test_the_yardstick_is_a_time_of_this_thread():
    assert yardstick.yardstick_s() > 0
    assert yardstick.usual_s() == yardstick.usual_s()


def test_what_took_its_time_on_a_slow_machine_is_told_for_the_usual_pace(monkeypatch):
    found = iter([3e-3] * 4 + [6e-3] * 4)
    monkeypatch.setattr(yardstick, "usual_s", lambda: 2e-3)
    monkeypatch.setattr(yardstick, "yardstick_s", lambda: next(found))
    with yardstick.Meanwhile() as meanwhile:
        pass
    assert meanwhile.to_usual == pytest.approx(2 / 4.5)
    assert next(found, None) is None
