#!/usr/bin/env python3
"""Compares the gradients of libflashdma_bwd and of PyTorch's flash backend with float64, on the same tensors.

    torch_flash_accuracy.py build/.../libflashdma_bwd.so

The bar: no relative error of ours is more than 1.25 times theirs. Needs a shared build of the library, PyTorch and a GPU. Exit code: 0 if
the bar holds everywhere, 1 if not, 2 for wrong usage.
"""

import ctypes as c
import itertools
import math
import sys

BAR = 1.25


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
        "ptr: d_q_accumulator d_k_accumulator d_v_accumulator; i32: sm_limit; u16: mask_block_q mask_block_k; u64: tag; ptr: kernel")


def load(path):
    library = c.CDLL(path)
    library.flashdma_bwd_last_message.restype = c.c_char_p
    library.flashdma_bwd_backward.argtypes = [c.POINTER(Arguments), c.c_void_p, c.c_size_t, c.c_void_p]
    library.flashdma_bwd_workspace_size.argtypes = [c.POINTER(Arguments), c.POINTER(c.c_size_t)]
    arguments = Arguments()
    library.flashdma_bwd_arguments_init(c.byref(arguments))
    if arguments.struct_size != c.sizeof(Arguments):
        sys.exit(f"the library's argument block has {arguments.struct_size} bytes, this script's {c.sizeof(Arguments)}")
    return library


def tensor(t):
    """A [batch, heads, rows, d] tensor of PyTorch."""
    return Tensor(t.data_ptr(), t.stride(0), t.stride(2), t.stride(1))


def ours(torch, library, q, k, v, out, lse, d_out, causal):
    a = Arguments()
    library.flashdma_bwd_arguments_init(c.byref(a))
    a.data_type = 0 if q.dtype == torch.float16 else 1
    a.batch, a.heads, a.seqlen_q, a.head_dim = q.shape
    a.heads_kv, a.seqlen_k = k.shape[1], k.shape[2]
    a.causal = int(causal)
    gradients = [torch.empty_like(t) for t in (q, k, v)]
    a.q, a.k, a.v, a.out, a.d_out = map(tensor, (q, k, v, out, d_out))
    a.d_q, a.d_k, a.d_v = map(tensor, gradients)
    a.lse = lse.data_ptr()
    a.lse_stride_batch, a.lse_stride_head, a.lse_stride_row = lse.stride()

    def check(code):
        if code != 0:
            sys.exit(library.flashdma_bwd_last_message().decode())

    size = c.c_size_t()
    check(library.flashdma_bwd_workspace_size(c.byref(a), c.byref(size)))
    workspace = torch.empty(size.value, dtype=torch.uint8, device=q.device)
    check(library.flashdma_bwd_backward(c.byref(a), workspace.data_ptr(), size.value, torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    return gradients


def exact(torch, q, k, v, d_out, causal):
    """The gradients in float64."""
    q, k, v = (t.double().requires_grad_() for t in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.autograd.grad(torch.softmax(scores, -1) @ v, (q, k, v), d_out.double())


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    library = load(sys.argv[1])
    torch.manual_seed(0)
    failures = 0
    print(f"{'type':9} {'d':>4} {'s':>5} {'causal':6}   ratio of errors, ours to PyTorch's: dQ dK dV")
    for dtype, d, s, causal in itertools.product((torch.bfloat16, torch.float16), (32, 64, 96, 128, 192, 256), (333, 1024), (False, True)):
        q, k, v, d_out = (torch.randn(2, 4, s, d, dtype=dtype, device="cuda") for _ in range(4))
        with torch.no_grad():
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            theirs = torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal), leaves, d_out)
        reference = exact(torch, q, k, v, d_out, causal)

        def errors(gradients):
            return [((g.double() - r).norm() / r.norm()).item() for g, r in zip(gradients, reference)]

        ratios = [a / b for a, b in zip(errors(ours(torch, library, q, k, v, out, lse, d_out, causal)), errors(theirs))]
        fine = all(ratio <= BAR for ratio in ratios)  # NaN is not fine
        failures += not fine
        print(f"{str(dtype)[6:]:9} {d:4} {s:5} {str(causal):6}   {' '.join(f'{r:.3f}' for r in ratios)}{'' if fine else '   above the bar'}")
    print(f"{failures} problems above {BAR} times PyTorch's error" if failures else f"every error is at most {BAR} times PyTorch's")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
