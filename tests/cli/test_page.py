"""The page to play with: in a real browser its sliders move bars, whose lengths are what the simulator gives."""

import re
from dataclasses import replace

import pytest
from browser import browser
from refusals import refusal

from ssfx.advice import advise
from ssfx.advice.play import WORDS, methods_of, table_of
from ssfx.cli.page import combinations, write_page
from ssfx.config.advice_question import resolve_setting

TWO = "cluster=box cluster.nodes=2 cluster.devices_per_node=1 cluster.device=rtx4090 cluster.link=1gbe"
ASKED = "model=resnet50 cluster=box cluster.link=1gbe cluster.nodes=2,4"
RIGHT, END, HOME, TAB = "\ue014", "\ue010", "\ue011", "\ue004"
BARS = "return document.getElementById('play-bars').data.map(one => [...one.x])"
SAID = "return document.getElementById('play-said').textContent"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pytest.importorskip("plotly")
    found = tmp_path_factory.mktemp("page") / "play.html"
    assert write_page(found, ASKED.split()) == 2
    return found


@pytest.fixture(scope="module")
def screen():
    with browser() as found:
        yield found


def opened(screen, path, wide=1280, dark=False):
    screen.open(path, wide, dark)
    screen.wait("return document.querySelectorAll('#play-bars .bars path').length")
    return screen


def moved(screen, act, script=BARS):
    before = screen.run(script)
    act()
    screen.wait(f"return JSON.stringify((() => {{ {script} }})()) !== {str(before)!r}.replaceAll(', ', ',')")
    return before, screen.run(script)


def set_to(screen, **given):
    """Set controls by id, as a hand does, and wait for the picture."""
    acts = "".join(f"document.getElementById('play-{name}').value = {value!r};" for name, value in given.items())
    event = "document.getElementById('play-form').dispatchEvent(new Event('input'));"
    screen.run(f"{acts}{event}")
    screen.call(
        "execute/async", {"script": "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))", "args": []}
    )


@pytest.mark.slow
@pytest.mark.parametrize("wide", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_readable_at_both_widths_and_in_the_dark(screen, path, wide, dark):
    opened(screen, path, wide, dark)
    assert screen.run("return document.documentElement.scrollWidth") <= wide
    assert screen.complaints() == []
    said = "return getComputedStyle(document.getElementById('play')).backgroundColor"
    assert (screen.run(said) == "rgb(255, 255, 255)") is not dark
    cut = screen.run(
        "return [...document.querySelectorAll('#play svg .annotation-text')].filter(one => "
        "one.getBoundingClientRect().right > innerWidth).map(one => one.textContent)"
    )
    assert cut == []
    words = set(
        screen.run("return [...document.querySelectorAll('#play-rows td:nth-child(2)')].map(one => one.innerText)")
    )
    assert {"dense", "recorded", "unknown"} <= words <= set(WORDS)
    colours = "return [...document.querySelectorAll('#play-rows b')].map(one => one.innerText + one.style.color)"
    assert len(set(screen.run(colours))) == len(words)


@pytest.mark.slow
def test_sliders_and_choices_move_the_bars_by_keyboard_alone(screen, path):
    opened(screen, path)
    screen.run("document.activeElement.blur()")
    screen.press([TAB])
    assert screen.run("return document.activeElement.id") == "play-cluster.nodes"
    slow, more_nodes = moved(screen, lambda: screen.press(["4"]))
    screen.press([TAB])
    assert screen.run("return document.activeElement.id") == "play-gbps"
    _, fast = moved(screen, lambda: screen.press([END]))
    assert sum(fast[2]) < sum(more_nodes[2])
    assert "NO:" not in screen.run(SAID)
    moved(screen, lambda: screen.press([HOME]))
    assert "NO: one alone is" in screen.run(SAID)
    screen.press([TAB])
    once, accumulated = moved(screen, lambda: screen.press([RIGHT]))
    assert sum(accumulated[0]) > sum(once[0])
    screen.press([TAB])
    moved(screen, lambda: screen.press([" "]))  # as asked
    assert screen.run(BARS) == more_nodes != slow
    assert screen.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize(("hundredths", "place"), [(-63, 2), (37, 0), (137, 3), (291, 1)])
def test_between_what_was_simulated_bars_are_what_a_simulation_gives(screen, path, hundredths, place):
    opened(screen, path)
    set_to(screen, **{"cluster.nodes": "4", "gbps": str(hundredths), "passes": str(place)})
    scale = 1.0 if screen.run("return document.getElementById('play-bars').layout.xaxis.title.text")[0] == "s" else 1e-3
    found = [scale * sum(parts) for parts in zip(*screen.run(BARS), strict=True)]
    labels = screen.run("return document.getElementById('play-bars').layout.annotations.map(one => one.text)")
    shown = {re.match("<b>(.*?)</b>", text)[1]: seconds for text, seconds in zip(labels, found, strict=True)}
    advice = advise(resolve_setting(ASKED.replace("2,4", "4").split()))
    at = replace(advice.setting, accumulate=place + 1).at(10 ** (hundredths / 100))
    direct = {label: tried(at).iteration_s for label, _, tried in methods_of(advice)}
    assert shown == pytest.approx(direct, rel=0.04)


def test_at_the_rate_that_was_asked_for_and_with_more_passes_the_table_is_exact():
    advice = advise(resolve_setting(f"model=gpt2 {TWO} accumulate=5".split()))
    table = table_of(advice)
    place = table["rates"].index(advice.setting.gbps)
    for one, (label, _, tried) in zip(table["methods"], methods_of(advice), strict=True):
        parts = zip(one["first"][place], one["further"][place], strict=True)
        assert one["label"] == label
        seconds = sum(first + 4 * further for first, further in parts)
        assert seconds == pytest.approx(tried(advice.setting).iteration_s, rel=1e-4), label


def test_it_needs_nothing_from_elsewhere(path):
    text = path.read_text()
    assert not re.findall(r"https?://|@import|<link|src=", text)
    assert len(text) < 3e6


def test_requests_that_cannot_be_a_page(capsys):
    assert combinations(["model=a,b", "scheme=x(1,2)"]) == [["model=a", "scheme=x(1,2)"], ["model=b", "scheme=x(1,2)"]]
    refused = {
        "model=gpt2 cluster=64gpu --page out.pdf": "write --page out.html",
        f"model=gpt2 cluster=64gpu density={','.join(['0.1'] * 40)} --page a.html": "at most 32 settings, these are 40",
    }
    for words, said in refused.items():
        assert said in refusal(capsys, "advise", *words.split()), words
