"""Mistakes planted in 1.2."""

from labs.kit.wrong import patch


def a_round_kernel(subject):
    """The test one would write first: powers of two, where nothing is rounded and nothing ties."""
    found = subject("9.0", 256, 64, 32 * 1024)
    assert (found.blocks, found.warps, found.share, found.limiter) == (4, 32, 0.5, "registers")


BY_REGISTERS = "_warps_by_registers(chip, registers) // warps"
QUARTERS = "chip.registers // SCHEDULERS // of_a_warp * SCHEDULERS"
WARPS = "warps = -(-threads // WARP)"
SHARED = "return chip.shared_bytes // _rounded_up(shared_bytes + SHARED_RESERVE, SHARED_UNIT)"
RESULT = "return Occupancy(blocks, blocks * warps, blocks * warps / chip.max_warps, limiter)"

WRONG = {
    "occupancy": {
        "plain_division": patch(
            BY_REGISTERS, "chip.registers // max(1, registers * threads)", "registers by the thread: nothing is rounded up"
        ),
        "one_register_file": patch(
            QUARTERS, "chip.registers // of_a_warp", "a warp's registers taken from two schedulers' parts"
        ),
        "not_in_units": patch("_rounded_up(registers * WARP, REGISTER_UNIT)", "registers * WARP", "37 registers given out as 37"),
        "units_of_a_thread": patch(
            "_rounded_up(registers * WARP, REGISTER_UNIT)", "_rounded_up(registers, 4) * WARP", "rounds to 4 a thread, not to 8"
        ),
        "units_of_a_block": patch(
            BY_REGISTERS,
            "chip.registers // _rounded_up(max(1, registers) * warps * WARP, REGISTER_UNIT)",
            "rounds a block's registers, not a warp's",
        ),
        "half_a_warp_is_free": patch(WARPS, "warps = max(1, threads // WARP)", "the threads that do not fill a warp vanish"),
        "no_places_for_blocks": patch('"blocks": chip.max_blocks,', '"blocks": chip.max_warps,', "as many blocks as warps"),
        "no_reserve": patch(
            SHARED, SHARED.replace(" + SHARED_RESERVE", ""), "forgets the system's KiB; crashes without shared memory"
        ),
        "one_reserve_for_all": patch(
            SHARED,
            "return (chip.shared_bytes - SHARED_RESERVE) // _rounded_up(max(1, shared_bytes), SHARED_UNIT)",
            "the system's KiB once for the multiprocessor, not for each block",
        ),
        "shared_by_the_byte": patch(
            SHARED, "return chip.shared_bytes // (shared_bytes + SHARED_RESERVE)", "nothing is rounded up"
        ),
        "last_of_a_tie": patch(
            "min(fits, key=fits.__getitem__)",
            "min(reversed(fits), key=fits.__getitem__)",
            "blames registers where warps are full",
        ),
        "the_plentiful": patch(
            "    blocks = fits[limiter]\n",
            "    blocks = fits[limiter]\n    limiter = max(fits, key=fits.__getitem__) if blocks > 4 else limiter\n",
            "names the supply of which most is left",
        ),
        "share_of_threads": patch(RESULT, RESULT.replace("blocks * warps /", "blocks * threads / WARP /"), "threads, not warps"),
        "share_of_blocks": patch(
            RESULT, RESULT.replace("blocks * warps / chip.max_warps", "blocks / fits['warps']"), "of the blocks that warps allow"
        ),
        "at_least_one": patch(
            "    blocks = fits[limiter]\n", "    blocks = max(1, fits[limiter])\n", "a launch that fails counts as one"
        ),
        "too_much_shared_first": patch(
            "    limiter = min(fits, key=fits.__getitem__)\n",
            '    limiter = "shared memory" if fits["shared memory"] == 0 else min(fits, key=fits.__getitem__)\n',
            "looks at shared memory before the order of a tie",
        ),
        "no_register_no_block": patch(
            "    if registers == 0:\n        return chip.max_warps\n",
            "    if registers == 0:\n        return 0\n",
            "0 of a supply is no lack of it",
        ),
        "never_refuses": patch(
            "    if shared_bytes < 0:\n", "    if False:\n", "negative shared memory makes room for more blocks"
        ),
    }
}
HAPPY = {"occupancy": a_round_kernel}
