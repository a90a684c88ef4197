// mbarrier objects: phases that complete when all arrivals and all announced bytes have come.
#include <initializer_list>

#include "scheduler.hpp"

namespace flashdma_bwd::emulated {
namespace {

constexpr std::int64_t kMostBytes = (1 << 20) - 1;

/// What its eight bytes hold, so that who overwrites them is found.
std::uint64_t image_of(const BarrierObject& barrier) {
  return std::uint64_t{0xbab1e} << 44 | std::uint64_t{barrier.phase & 0xfffffu} << 24 | std::uint64_t{barrier.pending};
}
void store_image(Cta& cta, std::uint32_t offset, const BarrierObject& barrier) {
  const std::uint64_t image = image_of(barrier);
  std::memcpy(pointer_into(cta, offset, 8), &image, sizeof image);
}

BarrierObject& barrier_at(Cta& cta, std::uint32_t offset) {
  const auto found = cta.barrier_objects.find(offset);
  if (found == cta.barrier_objects.end()) fail("no barrier object at %#x", offset);
  const std::uint64_t image = image_of(found->second);
  if (std::memcmp(pointer_into(cta, offset, 8), &image, sizeof image) != 0)
    fail("the barrier object at %#x has been overwritten", offset);
  return found->second;
}

/// Stores what an arrival or bytes have changed, after completing the phase if nothing is missing.
void update(Cta& cta, std::uint32_t offset, BarrierObject& barrier) {
  if (barrier.bytes > kMostBytes || barrier.bytes < -kMostBytes)
    fail("%lld bytes of the barrier object at %#x", static_cast<long long>(barrier.bytes), offset);
  const bool completed = barrier.pending == 0 && barrier.bytes == 0;
  if (completed) {
    barrier.pending = barrier.expected;
    ++barrier.phase;
    barrier.last_unfenced =
        barrier.unfenced.empty() ? nullptr : std::make_shared<const Writes>(std::move(barrier.unfenced));
    barrier.unfenced.clear();
  }
  store_image(cta, offset, barrier);
  if (completed) wake_all(barrier.waiting);
}

bool has_completed(const BarrierObject& barrier, std::uint32_t parity) {
  if (parity > 1) fail("parity %u", parity);
  return (barrier.phase & 1u) != parity;
}

/// Who sees a phase completed knows of what has been written before its arrivals.
void learn(const BarrierObject& barrier) {
  if (barrier.last_unfenced == nullptr) return;
  // Most who wait do not fence.
  constexpr std::size_t kMost = 16;
  auto& learned = running().learned;
  learned.push_back(barrier.last_unfenced);
  if (learned.size() > kMost) learned.pop_front();
}

}  // namespace

void mbarrier_init(std::uint32_t address, int arrivals) {
  Cta& cta = *running().cta;
  shared_pointer(address, 8);
  if (arrivals <= 0) fail("a barrier object of %d arrivals", arrivals);
  const std::uint32_t offset = offset_of(address);
  BarrierObject& barrier = cta.barrier_objects[offset];
  if (!barrier.waiting.empty()) fail("the barrier object at %#x is initialised while threads wait", offset);
  barrier = {};
  barrier.expected = barrier.pending = static_cast<std::uint32_t>(arrivals);
  store_image(cta, offset, barrier);
}

void mbarrier_arrive(std::uint32_t address, std::uint32_t expected_bytes, bool in_cluster) {
  if (diverges()) yield();
  if (!in_cluster) shared_pointer(address, 8);
  Cta& cta = cta_of(address);
  BarrierObject& barrier = barrier_at(cta, offset_of(address));
  if (barrier.pending == 0) fail("more arrivals than the barrier object at %#x expects", offset_of(address));
  // Of other CTAs' writes a fence would have to be theirs.
  const Fiber& fiber = running();
  if (&cta == fiber.cta)
    for (const Writes* const writes : std::initializer_list<const Writes*>{&fiber.unfenced, &fiber.warp->unfenced})
      barrier.unfenced.insert(barrier.unfenced.end(), writes->begin(), writes->end());
  barrier.bytes += expected_bytes;
  --barrier.pending;
  progress();
  update(cta, offset_of(address), barrier);
}

void complete_bytes(Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  BarrierObject& barrier = barrier_at(cta, offset);
  barrier.bytes -= bytes;
  update(cta, offset, barrier);
}

bool mbarrier_test(std::uint32_t address, std::uint32_t parity) {
  shared_pointer(address, 8);
  // Of what has come at the same time both answers are right.
  const bool completed =
      has_completed(barrier_at(*running().cta, offset_of(address)), parity) && !random_numbers().chance(32);
  // A single question does not part the lanes of a warp (scheduler.hpp); who keeps asking lets others run.
  constexpr unsigned kPatience = 16;
  if (!completed && (++running().tests_in_vain % kPatience == 0 || diverges())) yield();
  if (completed) {
    running().tests_in_vain = 0;
    learn(barrier_at(*running().cta, offset_of(address)));
  }
  return completed;
}

void mbarrier_wait(std::uint32_t address, std::uint32_t parity) {
  shared_pointer(address, 8);
  Cta& cta = *running().cta;
  while (true) {
    BarrierObject& barrier = barrier_at(cta, offset_of(address));
    if (has_completed(barrier, parity)) {
      running().tests_in_vain = 0;
      learn(barrier);
      return;
    }
    barrier.waiting.push_back(&running());
    block(parity == 0 ? "mbarrier, parity 0," : "mbarrier, parity 1,", offset_of(address), __builtin_return_address(0));
  }
}

}  // namespace flashdma_bwd::emulated
