// Prints what selection answers on an H100 in this process's environment: the kernel, or code and message. With
// --table-only the call ignores the environment. With --monitoring it prints what is monitored instead.
#include <cstdio>
#include <cstring>
#include <flashdma_bwd/flashdma_bwd.hpp>

int main(int count, char** values) {
  if (count > 1 && std::strcmp(values[1], "--monitoring") == 0) {
    std::printf("monitoring: %u\n", flashdma_bwd::monitoring());
    return 0;
  }
  flashdma_bwd::Arguments arguments;
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = arguments.heads = arguments.heads_kv = 1;
  arguments.head_dim = 128;
  arguments.seqlen_q = arguments.seqlen_k = 1024;
  if (count > 1 && std::strcmp(values[1], "--table-only") == 0) arguments.flags |= FLASHDMA_BWD_FLAG_TABLE_ONLY;
  const flashdma_bwd::Device device{90, 132, 232448};
  flashdma_bwd::Selection selection{};
  const flashdma_bwd::Status status = flashdma_bwd::select(arguments, selection, &device);
  std::printf("%s: %s\n", flashdma_bwd_code_name(status.code()),
              status.ok() ? selection.kernel : status.message().c_str());
}
