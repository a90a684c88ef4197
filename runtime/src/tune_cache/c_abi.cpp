// The functions of flashdma_bwd.h about learning which kernel is the fastest.
#include <flashdma_bwd/flashdma_bwd.h>

#include <cstring>
#include <string>

#include "device_traits.hpp"
#include "guarded.hpp"
#include "tune_cache/tuning.hpp"

using namespace flashdma_bwd;

void flashdma_bwd_tuning_init(flashdma_bwd_tuning* tuning) {
  if (tuning == nullptr) return;
  *tuning = {};
  tuning->struct_size = sizeof(flashdma_bwd_tuning);
}

flashdma_bwd_code flashdma_bwd_set_tuning(const flashdma_bwd_tuning* tuning) {
  return guarded([&]() -> Check {
    if (tuning == nullptr) return invalid("tuning is NULL: fill one with flashdma_bwd_tuning_init; its mode is off");
    if (Check failure =
            check_struct_size("tuning", "flashdma_bwd_tuning", tuning->struct_size, sizeof(flashdma_bwd_tuning)))
      return failure;
    TuneOptions options;
    if (std::string error = read_tune_options(*tuning, options); !error.empty()) return invalid(std::move(error));
    return set_tuning(options);
  });
}

flashdma_bwd_code flashdma_bwd_freeze_tuning(void) {
  return guarded([]() -> Check {
    if (TuneSession* session = tuning()) {
      if (!session->error().empty()) return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, session->error()};
      session->freeze();
    }
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_get_tuning(const flashdma_bwd_device* device, flashdma_bwd_tuning_state* state) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(state, "state")) return failure;
    if (Check failure = check_struct_size("state", "flashdma_bwd_tuning_state", state->struct_size,
                                          sizeof(flashdma_bwd_tuning_state)))
      return failure;
    DeviceTraits traits;
    if (Check failure = device_traits(device, traits)) return failure;
    TuneSession* session = tuning();
    if (session != nullptr && !session->error().empty()) return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, session->error()};
    *state = {};
    state->struct_size = sizeof(flashdma_bwd_tuning_state);
    if (session == nullptr) return {};
    DeviceChoices& choices = session->choices_for(traits);
    state->mode = static_cast<std::int32_t>(session->options().mode);
    state->frozen = session->frozen() ? 1 : 0;
    state->unsaved = static_cast<std::int32_t>(session->unsaved());
    state->choices = static_cast<std::int64_t>(choices.table.size());
    const std::string hash = TuneSession::hash_text(choices);
    std::memcpy(state->hash, hash.data(), hash.size());
    return {};
  });
}
