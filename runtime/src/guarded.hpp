// The frame of a C function: its failure becomes a code, and a message that is kept for the thread.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "failure.hpp"

namespace flashdma_bwd {

/// The message of a thread's last failure. Out of memory is told without any.
struct LastMessage {
  std::string text;
  const char* fixed = nullptr;
};

/// This thread's.
LastMessage& last_message();

/// Runs the body of a C function, which returns a Check. Functions nest: a body may call a hook of the program's, which
/// may call the library and leave the message of a failure of its own.
template <class Body>
flashdma_bwd_code guarded(Body&& body) noexcept {
  LastMessage& message = last_message();
  const auto forget = [&message] {
    message.fixed = nullptr;
    message.text.clear();
  };
  forget();
  try {
    Check failure = body();
    forget();
    if (!failure) return FLASHDMA_BWD_OK;
    message.text = std::move(failure->message);
    return failure->code;
  } catch (const std::bad_alloc&) {
    message.fixed = "out of host memory: free some and call again";
  } catch (const std::exception&) {
    message.fixed = "the host refused a resource, such as a thread: free some and call again";
  }
  return FLASHDMA_BWD_UNSUPPORTED;
}

/// Whether a result has somewhere to go.
inline Check check_pointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return invalid(std::string(name) + " is NULL: it receives the result");
}

/// Whether a versioned struct is this library's. `type` is the name of its type.
inline Check check_struct_size(const char* name, const char* type, std::uint32_t given, std::size_t size) {
  if (given == size) return {};
  return invalid(std::string(name) + ".struct_size is " + std::to_string(given) + ": set it to sizeof(" + type + "), " +
                 std::to_string(size));
}

}  // namespace flashdma_bwd
