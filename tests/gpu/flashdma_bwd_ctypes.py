"""The part of the C ABI that scripts of tests call, by ctypes: flashdma_bwd/flashdma_bwd.h, field by field."""

import ctypes as c


def fields(text):
    """`type: name name; ...` as ctypes fields."""
    types = {"u16": c.c_uint16, "u32": c.c_uint32, "i32": c.c_int32, "i64": c.c_int64, "u64": c.c_uint64, "f32": c.c_float, "ptr": c.c_void_p,
             "tensor": Tensor, "pairs": Pairs}
    result = []
    for part in text.split(";"):
        kind, names = part.split(":")
        result += [(name, types[kind.strip()]) for name in names.split()]
    return result


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("stride_batch", c.c_int64), ("stride_row", c.c_int64), ("stride_head", c.c_int64)]


class Pairs(c.Structure):
    _fields_ = [("data", c.c_void_p), ("data_type", c.c_int32), ("encoding", c.c_int32)] + [
        (name, c.c_int64) for name in ("batch", "heads", "rows", "columns", "stride_batch", "stride_head", "stride_row", "stride_column")]


class Arguments(c.Structure):
    """flashdma_bwd_arguments, field by field."""

    _fields_ = fields(
        "u32: struct_size flags; i32: data_type head_dim; i64: batch heads heads_kv seqlen_q seqlen_k; f32: scale softcap;"
        "i32: causal mask_density; i64: window_left window_right query_offset key_offset global_seqlen_q global_seqlen_k;"
        "ptr: cu_seqlens_q cu_seqlens_k; i64: total_q total_k; tensor: q k v out d_out; ptr: lse;"
        "i64: lse_stride_batch lse_stride_head lse_stride_row; i32: lse_base_two mask_layout; pairs: mask bias; ptr: plan;"
        "tensor: d_q d_k d_v; pairs: d_bias; ptr: d_lse row_dot; f32: beta_q beta_k beta_v beta_bias;"
        "ptr: d_q_accumulator d_k_accumulator d_v_accumulator; i32: sm_limit; u16: mask_block_q mask_block_k; u64: tag; ptr: kernel schedule")


def load(path):
    """The library; raises OSError where it is none, or another version's."""
    library = c.CDLL(path)
    library.flashdma_bwd_last_message.restype = c.c_char_p
    library.flashdma_bwd_table_hash.restype = c.c_char_p
    library.flashdma_bwd_backward.argtypes = [c.POINTER(Arguments), c.c_void_p, c.c_size_t, c.c_void_p]
    library.flashdma_bwd_workspace_size.argtypes = [c.POINTER(Arguments), c.POINTER(c.c_size_t)]
    arguments = Arguments()
    library.flashdma_bwd_arguments_init(c.byref(arguments))
    if arguments.struct_size != c.sizeof(Arguments):
        raise OSError(f"{path}: its flashdma_bwd_arguments has {arguments.struct_size} bytes, that of this script {c.sizeof(Arguments)}")
    return library


def tensor(t):
    """A [batch, heads, rows, d] tensor of PyTorch."""
    return Tensor(t.data_ptr(), t.stride(0), t.stride(2), t.stride(1))
