// The threads of a CTA whose kernel runs on the host: their stacks, and who goes on.
#include "lanes.hpp"

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <random>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace host_cuda {
namespace {

// AddressSanitizer's frames are large, and it clears what it knows of a whole stack at each change.
constexpr std::size_t kStackBytes = std::size_t{64} << 10;

/// A stack, and where its owner goes on.
struct Stack {
  ucontext_t context{};
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

struct Lanes {
  std::vector<Stack> stacks;
  std::vector<std::unique_ptr<std::byte[]>> memory;  ///< of stacks, kept for the next CTA
  std::vector<unsigned> runnable;
  std::mt19937 random{1};
  Stack launcher;
  Stack* left = nullptr;  ///< before the one at work
  const std::function<void()>* body = nullptr;
  unsigned running = 0;
  unsigned ended = 0;
};
Lanes lanes;

/// On the stack that has been changed to; `frames`: what AddressSanitizer gave when it was left, if it was.
void arrive([[maybe_unused]] void* frames) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(frames, &lanes.left->bottom, &lanes.left->bytes);
#endif
}

/// Leaves a stack to a lane that can go on, or to the launcher where none can, until another one comes back to it.
void leave(Stack& from, [[maybe_unused]] bool for_ever) {
  Stack* to = &lanes.launcher;
  if (!lanes.runnable.empty()) {
    std::swap(lanes.runnable[lanes.random() % lanes.runnable.size()], lanes.runnable.back());
    lanes.running = lanes.runnable.back();
    lanes.runnable.pop_back();
    threadIdx = {lanes.running, 0, 0};
    to = &lanes.stacks[lanes.running];
  }
  if (to == &from) return;
  lanes.left = &from;
  void* frames = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &frames, to->bottom, to->bytes);
#endif
  swapcontext(&from.context, &to->context);
  arrive(frames);
}

void begin() {
  arrive(nullptr);
  (*lanes.body)();
  ++lanes.ended;
  leave(lanes.stacks[lanes.running], true);
}

void prepare(unsigned count) {
  lanes.stacks.resize(count);
  while (lanes.memory.size() < count) lanes.memory.push_back(std::make_unique_for_overwrite<std::byte[]>(kStackBytes));
  lanes.runnable.clear();
  lanes.ended = 0;
  for (unsigned lane = 0; lane < count; ++lane) {
    Stack& stack = lanes.stacks[lane];
    stack.bottom = lanes.memory[lane].get();
    stack.bytes = kStackBytes;
    getcontext(&stack.context);
    stack.context.uc_stack.ss_sp = lanes.memory[lane].get();
    stack.context.uc_stack.ss_size = kStackBytes;
    stack.context.uc_link = nullptr;  // begin() does not return
    makecontext(&stack.context, begin, 0);
    lanes.runnable.push_back(lane);
  }
}

}  // namespace

void Barrier::arrive_and_wait() {
  if (waiting_.size() + 1 < expected_) {
    waiting_.push_back(lanes.running);
    leave(lanes.stacks[lanes.running], false);
    return;
  }
  lanes.runnable.insert(lanes.runnable.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
}

bool run_lanes(unsigned count, const std::function<void()>& body) {
  prepare(count);
  lanes.body = &body;
  leave(lanes.launcher, false);
  return lanes.ended == count;
}

}  // namespace host_cuda
