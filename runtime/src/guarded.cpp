// The message of each thread's last failure.
#include "guarded.hpp"

namespace flashdma_bwd {

LastMessage& last_message() {
  thread_local LastMessage message;
  return message;
}

}  // namespace flashdma_bwd
