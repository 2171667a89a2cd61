"""A plan as a picture for the terminal: one bar for the card, a line for each thing in it, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from minillm.plan import Plan

WIDTH = 72
# Each term's sign and colour: either alone tells them apart.
LOOK = {
    "weights": ("█", "blue"),
    "adapters": ("▆", "magenta"),
    "activations": ("▓", "yellow"),
    "runtime": ("▒", "red"),
    "users": ("#", "green"),
    "free cache": ("+", "bright_green"),
    "outside": ("·", "bright_black"),
}


def show(plan: Plan, console: Console) -> None:
    """Print it: what was asked, the bar, the terms, the verdict, the advice."""
    for line in lines(plan):
        console.print(line, soft_wrap=True, highlight=False)


def lines(plan: Plan) -> Iterator[Text]:
    """Each line; its plain text is what a terminal without colour shows."""
    wish = plan.wish
    images = f" and {wish.image_tokens:,} of images" if wish.image_tokens else ""
    yield Text(f"{plan.model_name} on one {plan.gpu_name} ({plan.memory / 1e9:.4g} GB)", "bold")
    yield Text(f"{wish.dtype} weights, {wish.cache_dtype} cache; {_users(wish.users)} of {wish.context:,} tokens{images}")
    yield Text()
    yield _bar(plan)
    yield Text()
    for name, size, remark in _terms(plan):
        sign, style = LOOK[name]
        yield Text.assemble((f"{sign} ", style), f"{name:<12}{size / 1e9:>8.2f} GB{size / plan.memory:>9.1%}  {remark}".rstrip())
    yield Text()
    yield _verdict(plan)
    yield from (Text(f"  {line}") for line in plan.advice)
    yield from (Text(f"note: {note}", "dim") for note in plan.notes)


def _terms(plan: Plan) -> Iterator[tuple[str, float, str]]:
    budget, wish = plan.budget, plan.wish
    heaviest = sorted(plan.weights_by_component.items(), key=lambda item: -item[1])
    yield "weights", budget.weights, ", ".join(f"{name} {size / 1e9:.2f}" for name, size in heaviest if size >= 5e7)
    if budget.adapters:
        yield "adapters", budget.adapters, f"{wish.lora_adapters} of rank {wish.lora_rank}"
    yield "activations", budget.activations, f"a step of {wish.max_num_batched_tokens:,} tokens, {wish.max_num_seqs} requests"
    yield "runtime", budget.runtime, "CUDA context, libraries, graphs: an estimate"
    asked = wish.users * plan.kv_bytes_per_user
    per_user = f"{_users(wish.users)} × {plan.kv_bytes_per_user / 1e9:.4g} GB"
    if budget.kv_cache < asked:
        yield "users", asked, f"{per_user}; room for {max(0.0, budget.kv_cache) / 1e9:.2f} GB"
    else:
        yield "users", asked, per_user
        yield "free cache", budget.kv_cache - asked, "taken from the start all the same"
    yield "outside", budget.outside, f"not the engine's: 1 - {wish.gpu_memory_utilization:g} of the card"


def _bar(plan: Plan) -> Text:
    """The card from edge to edge. What does not fit runs over its right end, `|`."""
    bar, drawn, position = Text(), 0, 0.0
    for name, size, _ in _terms(plan):
        if name == "outside" and not plan.fits:
            continue
        position += size
        sign, style = LOOK[name]
        until = min(WIDTH + 6, max(drawn, round(position / plan.memory * WIDTH)))
        bar.append(sign * (until - drawn), style)
        drawn = until
    if plan.fits:
        return bar
    plain, edge = bar.plain, round(WIDTH * plan.wish.gpu_memory_utilization)
    bar = bar[:edge] + Text("|", "bold red") + bar[edge:]
    return bar + Text(" …" if len(plain) >= WIDTH + 6 else "")


def _verdict(plan: Plan) -> Text:
    wish, missing = plan.wish, plan.wish.users * plan.kv_bytes_per_user - plan.budget.kv_cache
    if plan.fits:
        tokens = f" ({plan.kv_cache_tokens:,} tokens of cache)" if plan.kv_cache_tokens else ""
        room = f"room for {_users(plan.max_users)} of {wish.context:,} tokens{tokens}"
        return Text(f"fits: {room}, or {_users(wish.users)} of {plan.max_context:,}", "bold green")
    why = (
        "what the engine must hold is too large already"
        if plan.budget.kv_cache <= 0
        else f"there is room for {_users(plan.max_users)}"
    )
    remedy = ". Any one of these fits:" if len(plan.advice) > 1 else ". What fits:"
    return Text(f"does not fit: {missing / 1e9:.2f} GB are missing, {why}{remedy}", "bold red")


def _users(n: int) -> str:
    return f"{n} user" if n == 1 else f"{n:,} users"
