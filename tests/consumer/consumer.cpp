// A C++ program that links the installed library: what it has, and an error with its message.
#include <cstdio>
#include <flashdma_bwd/flashdma_bwd.hpp>

int main() {
  flashdma_bwd::Arguments arguments;
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = arguments.heads = arguments.heads_kv = 1;
  arguments.head_dim = 64;
  arguments.seqlen_q = arguments.seqlen_k = 128;
  const flashdma_bwd::Device a100{80, 108, 166912};
  std::printf("%zu kernels\n%s", flashdma_bwd::kernels().size(), flashdma_bwd::explain(arguments, &a100).c_str());

  arguments.seqlen_q = -1;
  std::size_t bytes = 0;
  const flashdma_bwd::Status status = flashdma_bwd::workspace_size(arguments, bytes);
  std::printf("%s\n", status.message().c_str());
  return status.code() == FLASHDMA_BWD_INVALID_ARGUMENT ? 0 : 1;
}
