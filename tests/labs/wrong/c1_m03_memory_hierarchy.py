"""Mistakes planted in 1.3."""

from labs.kit.wrong import patch


def side_by_side_and_far_apart(subject):
    """The test one would write first: coalesced, and every lane from its own sector."""
    assert subject([4 * lane for lane in range(32)]) == 4
    assert subject([128 * lane for lane in range(32)]) == 32


def a_row_and_a_column(subject):
    """The test one would write first: a row of a tile of 32 x 32, and a column."""
    assert subject([4 * lane for lane in range(32)]) == 0
    assert subject([128 * lane for lane in range(32)]) == 31


UPDATE = "pieces.update(range(address // granule, (address + width - 1) // granule + 1))"

WRONG = {
    "sectors_touched": {
        "first_byte_only": patch(
            UPDATE, "pieces.add(address // granule)", "an access that ends in another sector than it began in is counted once"
        ),
        "both_ends_only": patch(
            UPDATE,
            "pieces.update((address // granule, (address + width - 1) // granule))",
            "what lies between the first and the last byte of one lane is left out",
        ),
        "one_byte_too_far": patch(
            "(address + width - 1) // granule", "(address + width) // granule", "the byte after the last one is taken for wanted"
        ),
        "counts_from_the_first_lane": patch(
            "    for address in _taking_part(addresses):\n        pieces",
            "    taking = _taking_part(addresses)\n    for address in (a - min(taking) for a in taking):\n        pieces",
            "sectors are laid out from the lowest address on: an access that is out of step looks aligned",
        ),
        "counts_what_lies_between": patch(
            "return len(pieces)", "return max(pieces) - min(pieces) + 1 if pieces else 0", "everything from first to last"
        ),
        "once_for_each_lane": patch(
            "    pieces: set[int] = set()\n    for address in _taking_part(addresses):\n        pieces.update(range(",
            "    pieces = []\n    for address in dict.fromkeys(_taking_part(addresses)):\n        pieces.extend(range(",
            "a sector that two lanes want is moved twice",
        ),
        "none_is_zero": patch(
            "    for address in _taking_part(addresses):\n        pieces",
            "    for address in [a or 0 for a in addresses if a is None or _taking_part([a])]:\n        pieces",
            "a lane that takes no part asks for address 0",
        ),
        "always_32_bytes": patch(UPDATE, UPDATE.replace("granule", "SECTOR"), "granule is ignored"),
    },
    "bank_conflicts": {
        "no_broadcast": patch(
            "words = {word for address in addresses for word in range(address // WORD, (address + width - 1) // WORD + 1)}",
            "words = [word for address in addresses for word in range(address // WORD, (address + width - 1) // WORD + 1)]",
            "lanes that want the same word wait for one another",
        ),
        "adds_up_the_banks": patch(
            "    return max(wanted)\n", "    return 1 + sum(n - 1 for n in wanted if n)\n", "conflicts in two banks take turns"
        ),
        "counts_passes": patch(
            "return sum(_passes(phase, width) - 1 for phase",
            "return sum(_passes(phase, width) for phase",
            "the first pass counts as a conflict",
        ),
        "halves_of_a_word_conflict": patch(
            "words = {word for address in addresses for word in range(address // WORD, (address + width - 1) // WORD + 1)}",
            "words = [word for a in set(addresses) for word in range(a // WORD, (a + width - 1) // WORD + 1)]",
            "two lanes with one half each of the same word wait for one another",
        ),
        "every_access_in_two_halves": patch(
            "at_once = min(LANES, BANKS * WORD // width)", "at_once = LANES // 2", "half a warp at a time, as on GPUs of 2008"
        ),
        "one_phase_for_all": patch(
            "at_once = min(LANES, BANKS * WORD // width)", "at_once = LANES", "the passes that the bytes alone take are conflicts"
        ),
        "conflicts_between_phases": patch(
            "return sum(_passes(phase, width) - 1 for phase in phases if phase)",
            "return max((_passes(phase, width) - 1 for phase in phases if phase), default=0)",
            "phases run at the same time",
        ),
        "absent_lanes_close_up": patch(
            "    phases = [",
            "    addresses = _taking_part(addresses)\n    phases = [",
            "absent lanes are left out before lanes are dealt out to phases",
        ),
        "bank_of_the_address": patch(
            "wanted[word % BANKS] += 1", "wanted[word // BANKS % BANKS] += 1", "a bank is taken to be 128 bytes in a row"
        ),
        "misaligned_is_fine": patch(
            "if address % width]", "if address % width > width]", "an address the hardware would refuse is counted"
        ),
    },
}

HAPPY = {"sectors_touched": side_by_side_and_far_apart, "bank_conflicts": a_row_and_a_column}
