"""Machine code, read: instructions, widths, tensor cores, spills."""

import pytest
from minillm.kernels.instruments import sass
from minillm.kernels.instruments.targets import ARCHITECTURES, Target, target

from shared import hardware

NVIDIA = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0130*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0140*/              @P0  LDG.E.U16.CONSTANT R8, desc[UR4][R2.64] ;
        /*0150*/               @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0160*/                   LDGSTS.E.BYPASS.LTC128B.128 [R3], [R4.64] ;
        /*0168*/                   HMMA.16816.F32.BF16 R12, R4, R8, R12 ;
        /*0170*/                   STL.64 [R1+0x10], R4 ;
        /*0180*/                   LDL R4, [R1+0x10] ;
        /*0190*/                   LDTM.x32 R4, tmem[UR4] ;
        /*01a0*/                   STG.E.64 desc[UR4][R2.64], R4 ;
"""
AMD = """
	global_load_dwordx4 v[0:3], v[4:5], off
	buffer_load_ushort v1, v2, s[0:3], 0 offen
	v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]
	scratch_store_dwordx2 off, v[0:1], off
	s_endpgm
"""


def test_nvidias_instructions_are_named_without_predicate_and_operands():
    found = sass.instructions(NVIDIA)
    assert found["LDG.E.128"] == found["LDG.E.U16.CONSTANT"] == found["UIADD3"] == 1
    assert sass.widths(found, sass.GLOBAL_LOAD) == {128: 2, 16: 1}
    assert sass.widths(found, sass.GLOBAL_STORE) == {64: 1}
    assert sass.widths(found, sass.SPILL) == {64: 1, 32: 1}
    assert sass.tensor_core_instructions(found) == 1


def test_amds_instructions():
    found = sass.instructions(AMD, "hip")
    assert sass.widths(found, sass.GLOBAL_LOAD) == {128: 1, 16: 1}
    assert sass.widths(found, sass.SPILL) == {64: 1}
    assert sass.tensor_core_instructions(found) == 1


@pytest.mark.parametrize(
    "name",
    [
        "HMMA.16816.F32",
        "HGMMA.64x128x16.F32.BF16",
        "QMMA.16832.F32.E4M3.E4M3",
        "QGMMA.64",
        "IMMA.16832.S8.S8",
        "UTCHMMA",
        "UTCQMMA",
    ],
)
def test_tensor_core_instructions(name):
    assert sass.tensor_core_instructions({name: 3}) == 3


@pytest.mark.parametrize("name", ["FFMA", "HFMA2.MMA", "IMAD", "LDTM", "UTCBAR", "FMMA"])
def test_what_is_no_tensor_core_instruction(name):
    assert sass.tensor_core_instructions({name: 3}) == 0


@pytest.mark.parametrize(
    "name, bits",
    [
        *[
            ("LDG.E", 32),
            ("LDG.E.U8", 8),
            ("LDG.E.S16", 16),
            ("LDG.E.64", 64),
            ("LDG.E.128.CONSTANT", 128),
            ("LDG.E.ENL2.256", 256),
        ],
        *[("LDGSTS.E.BYPASS.LTC128B.128", 128), ("global_load_dword", 32), ("global_load_dwordx2", 64), ("global_load_ubyte", 8)],
        *[("buffer_load_dwordx4", 128), ("global_store_short", 16), ("global_load_short_d16_hi", 16), ("global_store_byte", 8)],
    ],
)
def test_width(name, bits):
    assert sass.width(name) == bits


def test_shared_and_constant_memory_are_not_global():
    assert sass.widths({"LDS.128": 1, "LDC.64": 1, "LDSM.16.M88.4": 1, "LDL": 1, "LDTM.x32": 1}, sass.GLOBAL_LOAD) == {}


def test_bulk_copies():
    assert sass.bulk_copies({"UTMALDG.2D": 2, "UTMASTG.2D": 1, "LDG.E": 5}) == 3


def test_targets():
    assert target("rtx-4090") == target("sm_89") == Target("cuda", "sm_89", 89, 32)
    assert (target("b200").compute_capability, target("h100-sxm").compute_capability) == ("10.0", "9.0")
    assert target("mi300x") == Target("hip", "gfx942", None, 64)
    assert target("mi300x").compute_capability is None


@pytest.mark.parametrize("name", ["rtx-5000", "sm89", "cuda", "gfx1100", ""])
def test_an_unknown_gpu_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=r"there is no GPU .*sm_89 or gfx942.*rtx-4090"):
        target(name)


def test_every_gpu_of_the_hardware_table_has_an_architecture():
    others = {"gaudi-3", "tpu-v5e", "tpu-v6e", "m3-ultra", "m4-max", "xeon-8480-x2"}  # not Triton's
    assert set(ARCHITECTURES) == set(hardware.names()) - others
