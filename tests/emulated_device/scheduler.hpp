// The emulated multiprocessors: CTAs, their threads and who runs next.
//
// Shared memory is thread_local in device code compiled for the CPU, so that a CTA needs thread-local storage of its
// own. It has that of an OS thread which does nothing else: the thread that launches runs the fibers of all CTAs and
// changes its thread pointer with the CTA, which takes a fraction of what changing OS threads does.
//
// The next warp is chosen at random from a seed, so that every run of a program explores the same orders, and another
// seed others. A warp's lanes run one after the other until each waits, before another warp does: as on a GPU, whose
// warps stay converged where their lanes do the same. Device code may rely on that only where it says so;
// FLASHDMA_BWD_EMULATED_DIVERGENT=1 parts lanes at random, which CUDA allows.
//
// Other environment variables: FLASHDMA_BWD_EMULATED_SEED (1), and FLASHDMA_BWD_EMULATED_RESIDENT: clusters that run at
// once (1). A kernel in which nobody can go on ends the program with a list of who waits where.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator.hpp"

namespace flashdma_bwd::emulated {

inline constexpr std::size_t kSharedBytes = 227 * 1024;  ///< a CTA's at most
inline constexpr unsigned kRankShift = 24;
inline constexpr unsigned kWarpLanes = 32;

struct Cta;
struct Warp;

/// A copy of the asynchronous proxy: `read` takes what it copies, `write` leaves it and tells its barrier.
struct Copy {
  std::function<void()> read;   ///< empty: has been done
  std::function<void()> write;  ///< empty: has been done
  Cta* reads = nullptr;         ///< whose shared memory it reads
  Cta* writes = nullptr;        ///< whose shared memory it writes
  void advance();               ///< by one of the two
  void finish_reading() {
    if (read) advance();
  }
  void finish() {
    while (read || write) advance();
  }
};
using CopyGroup = std::vector<std::shared_ptr<Copy>>;

/// Starts a copy: it is performed at any time from now on, at latest when someone waits for it.
void start(const std::shared_ptr<Copy>& copy);

/// 16 bytes of cp.async.
struct AsyncLoad {
  std::uint32_t destination;
  const void* source;
  bool valid;
};

/// A write to 16 bytes of shared memory that the asynchronous proxy may not see yet.
struct Write {
  std::uint32_t chunk;
  std::uint16_t writer;  ///< thread + 1
};
using Writes = std::vector<Write>;

/// A CUDA thread.
struct Fiber {
  Place place{};
  Cta* cta = nullptr;
  Warp* warp = nullptr;
  void* stack_pointer = nullptr;
  bool ended = false;
  // Where it waits, for messages.
  const char* waits_for = nullptr;
  std::uint64_t detail = 0;
  const void* caller = nullptr;
  unsigned tests_in_vain = 0;  ///< of barrier objects, in a row
  // Its groups of copies, the newest behind.
  std::vector<AsyncLoad> cp_async;
  std::deque<std::vector<AsyncLoad>> cp_async_groups;
  CopyGroup bulk;
  std::deque<CopyGroup> bulk_groups;
  Writes unfenced;                                    ///< that it has made since its last fence, and
  std::deque<std::shared_ptr<const Writes>> learned;  ///< those of others, which it knows of from barrier objects
};

/// A product of a warp's 16 rows that has been issued.
struct PendingProduct {
  std::array<float*, kWarpLanes> d;
  std::array<std::array<std::uint32_t, 4>, kWarpLanes> a;
  Product what;
  std::vector<float> accumulators;  ///< as they were at the issue, where they are added to
};

struct Warp {
  Cta* cta = nullptr;
  int first = 0;  ///< fiber
  int number = 0;
  unsigned lanes = 0;     ///< that there are
  unsigned live = 0;      ///< that have not ended
  unsigned runnable = 0;  ///< that do not wait
  bool listed = false;    ///< among the CTA's runnable warps
  unsigned arrived = 0;   ///< at the collective
  unsigned collectives = 0;
  const char* collective = nullptr;
  std::array<std::array<Slot, kWarpLanes>, 2> slots;
  std::deque<std::vector<PendingProduct>> products;  ///< committed groups
  std::vector<PendingProduct> uncommitted;
  bool fenced = false;  ///< registers, for products
  Writes unfenced;      ///< of all lanes, which know of each other's since they last met
};

struct NamedBarrier {
  unsigned arrived = 0;
  unsigned threads = 0;
  unsigned phase = 0;
  std::vector<Fiber*> waiting;
};

struct BarrierObject {
  std::uint32_t expected = 0;
  std::uint32_t pending = 0;
  std::int64_t bytes = 0;
  std::uint32_t phase = 0;
  std::vector<Fiber*> waiting;
  // What those who arrived knew of writes without a fence since, in the phase at work and in the last one.
  Writes unfenced;
  std::shared_ptr<const Writes> last_unfenced;
};

/// The threads that barrier.cluster counts, and the CTAs whose shared memory they reach.
struct Cluster {
  std::vector<Cta*> ctas;
  unsigned arrived = 0;
  unsigned phase = 0;
  unsigned running = 0;  ///< CTAs
  std::vector<Fiber*> waiting;
};

struct Cta {
  void* thread_pointer = nullptr;  ///< of its thread-local storage
  void* scheduler_stack = nullptr;
  std::byte* shared = nullptr;
  std::byte* stacks = nullptr;
  uint3 block{};
  unsigned rank = 0;
  Cluster* cluster = nullptr;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Warp*> runnable;
  std::vector<int> priorities;  ///< of warps
  unsigned live = 0;
  bool running = false;
  std::array<NamedBarrier, 16> barriers;
  std::unordered_map<std::uint32_t, BarrierObject> barrier_objects;
  std::array<unsigned, 2> register_requests{};                 ///< threads that asked for fewer, or for more
  std::array<std::uint16_t, kSharedBytes / 16> unfenced_by{};  ///< thread + 1 that wrote and has not fenced
};

/// Numbers of the seed; another sequence every launch.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t below(std::size_t count) { return static_cast<std::uint32_t>(engine_() % count); }
  /// True in `of_256` of 256 cases.
  bool chance(unsigned of_256) { return below(256) < of_256; }

 private:
  std::mt19937_64 engine_;
};

/// How likely what may happen early or late happens early, in this launch, of 256.
struct Policy {
  unsigned copies = 0;    ///< at each change of warps
  unsigned products = 0;  ///< when they are committed
  unsigned switches = 0;  ///< of CTAs, at each change of warps
  bool priorities = false;
};

Fiber& running();
Random& random_numbers();
const Policy& policy();
/// Suspends the running thread until someone wakes it.
void block(const char* what, std::uint64_t detail, const void* caller);
void wake(Fiber& fiber);
void wake_all(std::vector<Fiber*>& waiting);
/// Whether the running lane is to part from its warp here.
bool diverges();
/// Something has happened: no deadlock yet.
void progress();

std::byte* pointer_into(Cta& cta, std::uint32_t offset, std::size_t bytes);
Cta& cta_of(std::uint32_t address);
inline std::uint32_t offset_of(std::uint32_t address) {
  return address & ((1u << kRankShift) - 1);
}
void complete_bytes(Cta& cta, std::uint32_t offset, std::uint32_t bytes);
/// What the asynchronous proxy reads, in units of 16 bytes: NaNs where a thread has written without a fence since.
void read_shared(Cta& cta, std::uint32_t offset, std::size_t bytes, void* to);
/// Executes the warp's products but for the newest `pending` groups.
void execute_products(Warp& warp, std::size_t pending);

}  // namespace flashdma_bwd::emulated
