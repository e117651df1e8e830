"""The HTML page: self-contained, and in a browser it draws, answers pointer and keyboard, and complains of nothing.

The browser is Debian's chromium, driven by playwright; without either, only what needs no browser is tested.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from drawn import scenes

from piper_dsl.diagnostics import Source
from piper_dsl.draw import DrawError, View, find_scene, run_until_stuck
from piper_dsl.draw.differences import find_differences
from piper_dsl.draw.html import Sweep, find_sweep, html_page, sweep_page
from piper_dsl.draw.theme import DARK
from piper_dsl.expand import expand
from piper_dsl.simulate import Costs
from piper_dsl.syntax import parse

MARGIN = 76
"""Where the lanes begin in the page, in pixels."""
LANE, PITCH = 26, 32


def read_data(page: str) -> dict[str, Any]:
    """What the page has of its only variant."""
    (variant,) = read_document(page)["variants"]
    return variant


def read_document(page: str) -> dict[str, Any]:
    return json.loads(re.search(r'<script type="application/json" id="timeline">(.*?)</script>', page, re.DOTALL)[1])


# --- without a browser ---------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_outside_itself(make_timeline):
    page = html_page(scenes(make_timeline("1f1b", p=4, m=8)))
    assert not re.search(r"""\ssrc=|href|url\(|import|fetch\(|https?:|XMLHttp|WebSocket""", page)
    assert "default-src 'none'" in page


def test_the_data_are_those_of_the_timeline(make_timeline):
    timeline = make_timeline("zb_v", Costs(latency=0.3), p=2, m=4)
    data = read_data(html_page(scenes(timeline)))
    operations = data["operations"]
    assert {len(column) for column in operations.values()} == {len(timeline.schedule)}
    assert operations["start"] == pytest.approx(timeline.start.tolist())
    assert operations["end"] == pytest.approx(timeline.end.tolist())
    assert operations["row"] == timeline.schedule.rank.tolist()
    assert operations["cause"] == timeline.causes.tolist()
    assert data["critical"] == list(timeline.critical_indices)
    assert max(data["rows"][0]["held"]) == timeline.peak_memory[0]
    moves = timeline.moves
    columns = (moves.producer, moves.consumer, moves.start, moves.end)
    assert data["arrows"] == [pytest.approx(row) for row in zip(*columns, strict=True)]
    for index, site in enumerate(operations["site"]):
        span = timeline.schedule.origin.span(index)
        assert data["sites"][site] == {"place": str(span), "line": span.source.line(span.line).strip()}


@pytest.mark.parametrize("unit", [1e-200, 1e-12, 1e12])
def test_times_of_any_unit_keep_their_digits(make_timeline, unit):
    timeline = make_timeline("1f1b", Costs(F=1.25 * unit, B=2.5 * unit, latency=0.1 * unit), p=4, m=8)
    data = read_data(html_page(scenes(timeline)))
    assert data["operations"]["start"] == pytest.approx(timeline.start.tolist(), rel=1e-8, abs=0)
    assert [row[3] for row in data["arrows"]] == pytest.approx(timeline.moves.end.tolist(), rel=1e-8, abs=0)
    assert data["rows"][0]["times"] == pytest.approx(timeline.memory_curve(0)[0].tolist(), rel=1e-8, abs=0)


def test_several_timelines_are_numbered_on(make_timeline):
    one, other = make_timeline("1f1b", p=2, m=2), make_timeline("gpipe", p=2, m=2)
    data = read_data(html_page(scenes(one, other)))
    count = len(one.schedule)
    assert data["operations"]["row"][count:] == [2 + rank for rank in other.schedule.rank.tolist()]
    assert [cause - count for cause in data["operations"]["cause"][count:] if cause >= 0] == [
        cause for cause in other.causes.tolist() if cause >= 0
    ]
    assert len(data["moved"]) == len(find_differences(*scenes(other, one)).moved) > 0
    assert all(index >= count for index in data["moved"])
    assert all((source < count) == (target < count) for source, target, *_ in data["arrows"])


def test_no_text_can_leave_its_place(make_timeline):
    text = 'schedule "</script><script>alert(1)</script>"\nranks 1\nmicrobatches 1\nrank 0 { F[0] }\n'
    timeline = make_timeline(text)
    page = html_page(scenes(timeline))
    assert "alert(1)</script>" not in page
    assert read_data(page)["panels"][0]["title"].startswith(timeline.schedule.name)


def test_every_variant_of_a_sweep_is_that_of_its_parameters(make_timeline):
    values = {"p": [2, 4], "m": [4], "v": [1, 2]}
    sizes = [{"p": p, "m": 4, "v": v} for p in (2, 4) for v in (1, 2)]
    drawn = [scenes(make_timeline("interleaved_1f1b", **size)) for size in sizes]
    page = sweep_page(Sweep(values, [*drawn[:3], "p = 4, m = 4, v = 2: not today"]))
    document = read_document(page)
    assert document["sliders"] == [{"name": "p", "values": [2, 4]}, {"name": "v", "values": [1, 2]}]
    assert document["variants"][3] == {"refusal": "p = 4, m = 4, v = 2: not today"}
    for variant, (scene,) in zip(document["variants"], drawn[:3], strict=False):
        assert variant["end"] == scene.timeline.makespan
        assert len(variant["operations"]["start"]) == len(scene.schedule)


def test_a_sweep_of_too_much_or_nothing(make_timeline, monkeypatch):
    monkeypatch.setattr(import_module("piper_dsl.draw.html"), "_MOST", 100)
    big = scenes(make_timeline("1f1b", p=4, m=8))
    made = []
    variants = (made.append(variant) or variant for variant in ["no", big, big, big])
    with pytest.raises(DrawError, match=r"more than the 100 operations that one page holds; choose fewer values"):
        find_sweep({"p": [1, 2, 3, 4]}, variants)
    assert len(made) == 3  # what is too much is not made
    assert find_sweep({"p": [1, 2]}, [scenes(make_timeline("1f1b", p=8, m=8)), "no"])  # one is never too large
    with pytest.raises(DrawError, match=r"there is nothing to draw: p = 1: no; choose other values"):
        sweep_page(Sweep({"p": [1, 2]}, ["p = 1: no", "p = 2: no"]))


# --- in a browser --------------------------------------------------------------------------------------------


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Opens a page; what it complains of or asks the network for fails the test."""
    page = browser.new_page(viewport={"width": 1200, "height": 700})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url))

    def opened(content: str) -> Any:
        (tmp_path / "page.html").write_text(content, encoding="utf-8")
        page.goto(f"file://{tmp_path}/page.html")
        return page

    yield opened
    page.close()
    assert not complaints


def point(page: Any, time: float, row: int, makespan: float) -> tuple[float, float]:
    """Where a time of a row lies in the window, once all of the time is shown."""
    box = page.locator("#lanes").bounding_box()
    x = MARGIN + time / makespan * (box["width"] - MARGIN - 8)
    return box["x"] + x, box["y"] + 6 + row * PITCH + LANE / 2


def colours(page: Any, places: list[tuple[float, int]], makespan: float) -> list[tuple[int, ...]]:
    """The colours drawn at times of rows, near the upper edge of the lane, where no label is."""
    script = """(points) => { const canvas = document.getElementById("lanes"), box = canvas.getBoundingClientRect();
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return points.map(([x, y]) => {
            const at = 4 * (Math.floor(y - box.y - 10) * canvas.width + Math.floor(x - box.x));
            return [...pixels.data.slice(at, at + 3)]; }); }"""
    points = [point(page, time, row, makespan) for time, row in places]
    return [tuple(pixel) for pixel in page.evaluate(script, points)]


def rgb(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(text[1:]))


def test_boxes_are_drawn_where_the_timeline_says(make_timeline, open_page):
    timeline = make_timeline("1f1b", p=4, m=8)
    content = html_page(scenes(timeline))
    data, page = read_data(content), open_page(content)
    drawn = data["operations"]
    lasting = [index for index in range(len(timeline.schedule)) if timeline.end[index] > timeline.start[index]]
    middles = [((timeline.start + timeline.end)[i] / 2, int(timeline.schedule.rank[i])) for i in lasting]
    *boxes, idle = colours(page, [*middles, (6.5, 0)], timeline.makespan)
    assert boxes == [rgb(data["paints"][drawn["paint"][index]]["fill"]) for index in lasting]
    assert idle == rgb(data["theme"]["lane"])


def test_hover_tells_what_an_operation_waited_for(make_timeline, open_page):
    timeline = make_timeline("1f1b", p=4, m=8)
    page = open_page(html_page(scenes(timeline)))
    assert page.locator("#tip").is_hidden()
    page.mouse.move(*point(page, 11.0, 0, timeline.makespan))
    said = page.locator("#tip").inner_text().splitlines()
    assert said[:3] == ["0B0: backward on rank 0", "10 to 12, takes 2", "waited for 1B0 on rank 1, which ended at 10"]
    assert said[3].startswith("1f1b.pipe:")
    page.mouse.move(*point(page, 6.5, 0, timeline.makespan))
    assert page.locator("#tip").is_hidden()


def test_a_click_follows_the_chain_of_reasons(make_timeline, open_page):
    timeline = make_timeline("1f1b", p=4, m=8)
    page = open_page(html_page(scenes(timeline)))
    page.mouse.click(*point(page, 32.0, 0, timeline.makespan))
    chain = page.locator("#reasons li").all_inner_texts()
    path = [str(operation) for operation in timeline.critical_path if operation.microbatch is not None]
    assert [text.removeprefix("← ").strip() for text in chain] == path[::-1]
    page.locator("#reasons li button").nth(1).click()
    assert page.locator("#reasons").inner_text().startswith(f"{path[-2]}: ")


def passed(page: Any, first: str, steps: int) -> list[str]:
    """What has the focus, from an element on and behind every Tab. Where a page begins is the browser's choice."""
    page.focus(first)
    found = [page.evaluate("document.activeElement.id")]
    for _ in range(steps):
        page.keyboard.press("Tab")
        found.append(page.evaluate("document.activeElement.id"))
    return found


def test_the_keyboard_does_all(make_timeline, open_page):
    timeline = make_timeline("1f1b", p=4, m=8)
    page = open_page(html_page(scenes(timeline)))
    reasons, lanes = page.locator("#reasons"), page.locator("#lanes")
    assert passed(page, "#closer", 6) == ["closer", "wider", "fit", "transfers", "path", "memory", "lanes"]

    def press(*keys: str) -> str:
        for key in keys:
            page.keyboard.press(key)
        return reasons.inner_text().split(":")[0]

    def window() -> list[float]:
        return [float(number) for number in lanes.get_attribute("data-window").split()]

    assert press("ArrowRight") == "0F0"
    assert press("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight") == "0B0"
    assert press("Enter") == "1B0"
    assert press("ArrowUp") == "0B0"
    assert press("ArrowLeft") == "0F3"
    assert press("Escape") == ""
    assert window() == [0, timeline.makespan]
    press("+")
    start, end = window()
    assert end - start == pytest.approx(timeline.makespan / 2)
    press("Shift+ArrowRight")
    assert window()[0] == pytest.approx(start + timeline.makespan / 8)
    press("0")
    assert window() == [0, timeline.makespan]
    for key, what in (("t", "transfers"), ("c", "path"), ("m", "memory")):
        before = lanes.screenshot()
        press(key)
        assert page.locator(f"#{what}").is_checked()
        assert lanes.screenshot() != before


def test_wheel_and_drag_move_the_window(make_timeline, open_page):
    timeline = make_timeline("1f1b", p=4, m=8)
    page = open_page(html_page(scenes(timeline)))
    x, y = point(page, 16.5, 1, timeline.makespan)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -800)
    page.wait_for_function("!document.getElementById('lanes').dataset.window.startsWith('0 ')")
    start, end = map(float, page.locator("#lanes").get_attribute("data-window").split())
    assert start < 16.5 < end
    page.mouse.down()
    page.mouse.move(x - 200, y, steps=4)
    page.mouse.up()
    moved = float(page.locator("#lanes").get_attribute("data-window").split()[0])
    assert moved > start
    assert page.locator("#reasons").inner_text() == ""


def test_small_units_and_long_facts(make_timeline, open_page):
    costs = Costs(F=1.25e-12, B=2.5e-12)
    page = open_page(html_page(scenes(make_timeline("1f1b", costs, p=4, m=8), make_timeline("zb_h1", costs, p=4, m=8))))
    page.set_viewport_size({"width": 500, "height": 700})
    page.focus("#lanes")
    for key in ("ArrowRight", "ArrowRight", "+", "+"):
        page.keyboard.press(key)
    assert "1.25e-12 to 2.5e-12, takes 1.25e-12" in page.locator("#reasons").inner_text()
    # The facts of the second are cut into lines, above its lanes.
    assert page.evaluate("document.getElementById('lanes').clientHeight") > 8 * PITCH + 30 + 3 * 15
    assert "in another order" in page.locator("#legend").inner_text()


def test_a_window_is_where_the_page_opens(make_timeline, open_page):
    page = open_page(html_page(scenes(make_timeline("1f1b", p=4, m=8), start=10.0, end=20.0, theme=DARK)))
    assert page.locator("#lanes").get_attribute("data-window") == "10 20"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"


def test_sliders_choose_what_was_simulated_beforehand(make_timeline, open_page):
    sizes = [{"p": p, "m": m} for p in (2, 4) for m in (4, 8, 16)]
    drawn = [scenes(make_timeline("1f1b", **size), memory=True) for size in sizes]
    page = open_page(sweep_page(Sweep({"p": [2, 4], "m": [4, 8, 16]}, [*drawn[:5], "p = 4, m = 16: too much"])))
    title, lanes = page.locator("#title"), page.locator("#lanes")
    assert title.inner_text() == "1F1B p=2 m=4 v=1"
    assert page.locator("#memory").is_checked()
    assert passed(page, "#slider-p", 2) == ["slider-p", "slider-m", "closer"]
    page.press("#slider-m", "ArrowRight")
    assert title.inner_text() == "1F1B p=2 m=8 v=1"
    assert page.locator("#sliders").inner_text() == "p = 2\nm = 8"
    page.press("#slider-p", "End")
    assert title.inner_text() == "1F1B p=4 m=8 v=1"
    assert lanes.get_attribute("data-window") == "0 33"
    makespan = float(make_timeline("1f1b", p=4, m=8).makespan)
    page.uncheck("#memory")
    page.mouse.move(*point(page, 11.0, 0, makespan))
    assert page.locator("#tip").inner_text().startswith("0B0: backward on rank 0")
    page.press("#slider-m", "End")
    assert page.locator("#refusal").inner_text() == "p = 4, m = 16: too much"
    assert page.locator("#shown").is_hidden()
    page.press("#slider-m", "Home")
    assert title.inner_text() == "1F1B p=4 m=4 v=1"
    assert page.locator("#refusal").inner_text() == ""


def test_one_schedule_has_no_slider(make_timeline, open_page):
    page = open_page(html_page(scenes(make_timeline("1f1b", p=2, m=2))))
    assert page.locator("#sliders *").count() == 0


def test_what_is_stuck_says_so(open_page):
    text = "ranks 2 microbatches 2\nrank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n"
    timeline, heads = run_until_stuck(expand(parse(Source("stuck.pipe", text))), Costs())
    page = open_page(html_page([find_scene(timeline, View(), heads, 1)]))
    page.mouse.move(*point(page, 2.0, 0, 3.0))
    assert page.locator("#tip").inner_text() == "0B0 is stuck at 1: waits for 1B0"
    assert "stuck: 2 operations run" in page.locator("#heading").inner_text()


def test_a_big_schedule_opens(make_timeline, open_page):
    timeline = make_timeline("interleaved_1f1b", p=16, m=512, v=4)
    page = open_page(html_page(scenes(timeline, transfers=True)))
    assert page.locator("#note").inner_text() == "64512 transfers are too many to draw: zoom in"
    page.focus("#lanes")
    page.keyboard.press("ArrowRight")
    assert page.locator("#reasons").inner_text().startswith("0F0: forward on rank 0")
    for _ in range(7):
        page.keyboard.press("+")
    assert page.locator("#note").inner_text() == ""
