"""The page in a browser: it shows what the engine does, whoever looks at it and with whatever device.

Run with `pytest -m browser`. The browser is the one named by CHROMIUM, or the first found among the usual names.
"""

import os
import random
import re
import shutil
import time

import pytest

from minillm.replay import EngineState
from minillm.request import SamplingParams

pytestmark = pytest.mark.browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
WAIT_MS = 60_000
SMALL_POOL = 150 * 16  # tokens: a burst outgrows it


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # not at the top: the file is collected where playwright is not installed

    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    executable = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.fail(f"no browser found among {', '.join(names)}: install Chromium, or set CHROMIUM to one")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def server(serving, chat_llm):
    bytes_per_token = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, head size, float32
    llm = chat_llm(
        max_model_len=2000, max_num_batched_tokens=512, max_num_seqs=10, kv_cache_memory_bytes=SMALL_POOL * bytes_per_token
    )
    with serving(llm.engine) as served:
        yield served


@pytest.fixture
def open_page(browser, server):
    """open_page(width=390, color_scheme="dark", ...): the page, watched for errors and for requests to anywhere else."""
    contexts, problems = [], []

    def make(url=None, width=1280, height=900, prepare=lambda page: None, expect=(), **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console", lambda m: problems.append(m.text) if m.type == "error" and not any(e in m.text for e in expect) else None
        )
        page.on("request", lambda r: None if r.url.startswith(server.url) else problems.append(f"asked {r.url}"))
        prepare(page)
        page.goto(f"{server.url}/")
        return page

    yield make
    for context in contexts:
        context.close()
    assert problems == []


def text(page, name) -> str:
    return page.inner_text(f"#{name}")


def wait_for(page, name, pattern) -> str:
    page.wait_for_function(
        "([id, pattern]) => new RegExp(pattern).test(document.getElementById(id).textContent)", arg=[name, pattern]
    )
    return text(page, name)


def eventually(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def colours_in(page, name) -> set[str]:
    """The colours of a canvas, as seen by whoever looks at it."""
    return set(page.evaluate(
        """(id) => {
          const canvas = document.getElementById(id);
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] === 255) seen.add("#" + [0, 1, 2].map((j) => data[i + j].toString(16).padStart(2, "0")).join(""));
          return [...seen];
        }""", name,
    ))  # fmt: skip


def palette(page) -> list[str]:
    return page.evaluate(
        "Array.from({length: 8}, (_, i) => getComputedStyle(document.documentElement).getPropertyValue(`--request-${i}`).trim())"
    )


REPLAY = """async (events) => {
  const { EngineState } = await import("/page/replay.js");
  const state = new EngineState(events[0]);
  return events.map((event, i) => {
    if (i) state.apply(event);
    const tables = Object.fromEntries([...state.requests].map(([id, request]) => [id, [...request.block_ids]]));
    return { references: state.holders.map((ids) => ids.length), named: [...state.named].sort((a, b) => a - b), tables,
             counts: state.count(), computed: [...state.requests.values()].map((r) => [r.num_tokens, r.num_computed_tokens]) };
  });
}"""


def test_the_pages_replay_is_pythons_after_every_event(open_page, tiny_llm):
    engine, rng, events = (
        tiny_llm(block_size=4, kv_cache_memory_bytes=160 * 256, max_num_batched_tokens=40).engine,
        random.Random(3),
        [],
    )
    engine.events.subscribe(events.append)
    system, live = [rng.randrange(256) for _ in range(26)], []
    for _ in range(150):
        if rng.random() < 0.4 and len(live) < 12:
            prompt = system + [rng.randrange(256) for _ in range(rng.randint(1, 15))]
            (request,) = engine.make_requests(
                prompt, SamplingParams(temperature=0, ignore_eos=True, max_tokens=rng.randint(1, 40))
            )
            engine.add(request)
            live.append(request.request_id)
        if live and rng.random() < 0.05:
            engine.abort([live.pop(0)])
        engine.step_text()
        live = [request_id for request_id in live if request_id in engine._requests]
    assert any(event.get("preempted") for event in events)

    shown = open_page().evaluate(REPLAY, events)
    state = EngineState(events[0])
    for event, page in zip(events, shown, strict=True):
        state.apply(event)
        blocks = state.blocks
        assert page["references"] == blocks.references()
        assert (page["named"], page["tables"]) == (sorted(blocks.named), blocks.tables)
        assert page["computed"] == [[r.num_tokens, r.num_computed_tokens] for r in state.requests.values()]
        assert page["counts"] == {
            "held": blocks.num_blocks - blocks.num_free,
            "shared": blocks.num_shared,
            "cached": len(blocks.cached),
            "free": blocks.num_free,
        }


def test_the_pages_replay_refuses_a_gap(open_page, tiny_llm):
    engine, events = tiny_llm().engine, []
    engine.events.subscribe(events.append)
    (request,) = engine.make_requests([1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True))
    engine.add(request)
    while engine.has_unfinished:
        engine.step_text()
    error = open_page().evaluate(f"(events) => ({REPLAY})(events).catch((error) => error.message)", events[:2] + events[3:])
    assert "one is missing" in error


# on a quick machine nobody waits for long: whoever looks now and then may look too late
NOTE_WHO_WAITS = """() => {
  for (const [id, name] of [["waiting", "whoWaited"], ["running", "whoRan"]]) {
    const node = document.getElementById(id);
    window[name] = "";
    const note = new MutationObserver(() => { window[name] += node.textContent; });
    note.observe(node, {childList: true, subtree: true, characterData: true});
  }
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_burst_is_seen_from_its_first_step_to_its_last_block(open_page, server, request, width, scheme):
    server.engine.scheduler.kv.pool.forget_all()  # what an earlier test has left behind
    page, seen = open_page(width=width, color_scheme=scheme), []
    server.engine.events.subscribe(seen.append)
    request.addfinalizer(lambda: server.engine.events.unsubscribe(seen.append))
    if width == 390:
        page.click("#show-watch")
    wait_for(page, "summary", "Running 0, waiting 0; 0 of 150 blocks held")
    page.evaluate(NOTE_WHO_WAITS)
    page.click("#burst")
    wait_for(page, "summary", "[1-9][0-9]* shared")
    assert len(colours_in(page, "blocks") & set(palette(page))) >= 4
    wait_for(page, "burst-text", "All 12 answered")
    assert "here for" in page.evaluate("window.whoWaited") and "#" in page.evaluate("window.whoRan"), "twelve ask and ten may run"
    wait_for(page, "summary", "Running 0, waiting 0; 0 of 150 blocks held, 0 shared, [1-9]")
    assert len(colours_in(page, "strip") & set(palette(page))) >= 3
    assert text(page, "value-ttft") != "–" and text(page, "value-tpot") != "–" and text(page, "value-kv") == "0 %"
    steps = [event for event in seen if event["type"] == "step"]
    kinds = {item["kind"] for event in steps for item in event["scheduled"]}
    assert kinds == {"chunk", "prefill", "decode"} and any(event["preempted"] for event in steps)
    assert f"Step {steps[-1]['step']:,}," in text(page, "strip-text")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    server.assert_all_freed()


def test_a_burst_that_is_stopped_leaves_nothing_behind(open_page, server):
    page = open_page()
    page.click("#burst")
    wait_for(page, "summary", "Running [1-9]")
    assert text(page, "burst") == "Stop the burst"
    page.click("#burst")
    wait_for(page, "burst-text", "Stopped")
    wait_for(page, "summary", "Running 0, waiting 0; 0 of")
    assert text(page, "burst") == "Send a burst"
    server.assert_all_freed()


def test_a_burst_that_is_refused_says_why(open_page):
    def refuse(page):
        body = '{"error": {"message": "the queue is full; try again later"}}'
        page.route("**/v1/completions", lambda route: route.fulfill(status=429, content_type="application/json", body=body))

    page = open_page(prepare=refuse, expect=["429"])
    page.click("#burst")
    assert "the queue is full" in wait_for(page, "burst-text", "failed")
    assert text(page, "burst") == "Send a burst"


def test_a_chat_beside_a_burst_still_answers(open_page, server):
    """A browser opens six connections at most: burst, events and chat must do with them."""
    page = open_page()
    page.fill("#max-tokens", "8") if page.is_visible("#max-tokens") else page.evaluate(
        "document.getElementById('max-tokens').value = 8"
    )
    page.click("#burst")
    wait_for(page, "summary", "Running [1-9]")
    page.fill("#input", "Hello")
    page.press("#input", "Enter")
    page.wait_for_selector(".facts")
    wait_for(page, "burst-text", "All 12 answered")
    server.assert_all_freed()


def test_steps_and_blocks_can_be_picked_with_the_keyboard(open_page, server):
    page = open_page()
    page.click("#burst")
    wait_for(page, "burst-text", "All 12 answered")
    wait_for(page, "summary", "Running 0, waiting 0")
    last = int(re.search(r"Step ([\d,]+)", wait_for(page, "strip-text", "Step")).group(1).replace(",", ""))
    page.focus("#strip")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    wait_for(page, "strip-text", f"Step {last - 2:,},")
    assert page.get_attribute("#strip-text", "aria-live") == "polite"
    page.keyboard.press("Escape")
    wait_for(page, "strip-text", f"Step {last:,},")
    assert page.get_attribute("#strip-text", "aria-live") == "off"
    page.focus("#blocks")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    wait_for(page, "blocks-text", "Block 1:")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    wait_for(page, "blocks-text", "Block 0:")


def test_a_narrow_screen_shows_the_chat_first_and_the_engine_on_demand(open_page):
    page = open_page(width=390, height=844)
    assert page.is_visible("#input") and not page.is_visible("#strip")
    page.click("#show-watch")
    assert page.is_visible("#strip") and not page.is_visible("#input")
    assert page.get_attribute("#show-watch", "aria-pressed") == "true"
    page.click("#show-chat")
    assert page.is_visible("#input")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.is_visible("#input") and page.is_visible("#strip") and not page.is_visible("#show-chat")


def test_a_hidden_tab_does_not_listen(open_page, server):
    page = open_page()
    wait_for(page, "summary", "Running 0")
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    assert server.engine.events.is_on
    page.evaluate(hide, True)
    eventually(lambda: not server.engine.events.is_on)  # the server notices at its next comment
    page.evaluate(hide, False)
    page.wait_for_timeout(500)
    assert server.engine.events.is_on


def test_the_page_comes_back_when_the_server_does(open_page):
    def cut_once(page):
        first = iter([True])
        page.route("**/engine/events", lambda route: route.abort() if next(first, False) else route.continue_())

    page = open_page(prepare=cut_once, expect=["ERR_FAILED"])
    wait_for(page, "summary", "Running 0, waiting 0")


def test_the_page_asks_for_the_key_and_sends_it(open_page):
    def guard(page):
        def check(route):
            if route.request.headers.get("authorization") == "Bearer open sesame":
                return route.continue_()
            return route.fulfill(status=401, content_type="application/json", body='{"error": {"message": "no key"}}')

        for path in ("v1/**", "engine/**"):
            page.route(f"**/{path}", check)

    page = open_page(prepare=guard, expect=["401"])
    page.fill("#key", "open sesame")
    page.press("#key", "Enter")
    wait_for(page, "summary", "Running 0, waiting 0")
    assert not page.is_visible("#key-bar")
    page.reload()
    wait_for(page, "summary", "Running 0, waiting 0")


def test_thousands_of_blocks_are_laid_out_to_fit(open_page):
    layouts = open_page().evaluate("""async () => {
      const { layout } = await import("/page/blocks.js");
      return [1, 7, 150, 3000, 16384, 200000].map((count) => ({ count, ...layout(count, 500) }));
    }""")
    for plan in layouts:
        assert plan["columns"] * plan["pitch"] <= 500 and plan["rows"] * plan["pitch"] <= 200
        assert plan["columns"] * plan["rows"] >= plan["squares"] >= plan["count"] / plan["group"]
    assert [plan["group"] for plan in layouts[:4]] == [1, 1, 1, 1] and layouts[0]["pitch"] == 18


def test_the_scale_of_the_strip_shows_one_token_and_keeps_the_budget(open_page):
    heights = open_page().evaluate("""async () => {
      const { scaleFor } = await import("/page/strip.js");
      return [8, 256, 2048, 100000].map((budget) => [0, 1, budget / 2, budget].map(scaleFor(budget, 150)));
    }""")
    for zero, one, half, full in heights:
        assert zero == 0 and one >= 9.99 and one < half < full and abs(full - 150) < 1e-6
