// The emulated multiprocessors: threads as fibers, and who runs next.
#include "scheduler.hpp"

#include <asm/prctl.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <semaphore>
#include <thread>

// What kernels declare as `extern __shared__`: `shared`, in functions of C linkage, and flashdma_bwd::dynamic_shared.
extern "C" {
extern thread_local unsigned char shared[flashdma_bwd::emulated::kSharedBytes];
alignas(1024) thread_local unsigned char shared[flashdma_bwd::emulated::kSharedBytes];
}
namespace flashdma_bwd {
extern thread_local unsigned char dynamic_shared[emulated::kSharedBytes] __attribute__((alias("shared")));
}

// void switch_stack(void** saved, void* next): saves what a call must preserve on this stack and goes on with another.
asm(R"(
.text
.p2align 4
.type flashdma_bwd_switch_stack, @function
flashdma_bwd_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size flashdma_bwd_switch_stack, .-flashdma_bwd_switch_stack
)");
extern "C" void flashdma_bwd_switch_stack(void** saved, void* next);

namespace flashdma_bwd::emulated {

constinit thread_local const Place* place = nullptr;

namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kPageBytes = 4096;  // at the end of each stack nothing may be touched
constexpr unsigned kMostThreads = 1024;
/// Looks at memory in vain after which copies are performed, and after which nobody is expected to go on.
constexpr std::uint64_t kImpatient = 2000;
constexpr std::uint64_t kHopeless = std::uint64_t{1} << 22;

constinit thread_local Fiber* running_fiber = nullptr;

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// All CTAs that are resident, and the copies in flight.
struct Device {
  std::mutex launches;
  std::uint64_t seed = environment_number("FLASHDMA_BWD_EMULATED_SEED", 1);
  Random random{seed};
  bool divergent = environment_number("FLASHDMA_BWD_EMULATED_DIVERGENT", 0) != 0;
  Policy policy;
  LaunchShape shape{};
  const std::function<void()>* thread = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<Cluster> clusters;
  std::vector<unsigned> order;  ///< of the grid's clusters
  std::size_t started = 0;      ///< of them
  std::vector<std::shared_ptr<Copy>> copies;
  std::uint64_t looks_in_vain = 0;
};
Device& device() {
  static auto* const all = new Device;  // its threads outlive main
  return *all;
}

// --- Messages ---

void print_waiting(const Cta& cta) {
  std::fprintf(stderr, " CTA %u %u %u\n", cta.block.x, cta.block.y, cta.block.z);
  const auto same = [](const Fiber& a, const Fiber& b) {
    return a.ended == b.ended && a.waits_for == b.waits_for && a.detail == b.detail && a.caller == b.caller;
  };
  for (std::size_t i = 0; i < cta.fibers.size();) {
    std::size_t end = i;
    while (end < cta.fibers.size() && same(cta.fibers[i], cta.fibers[end])) ++end;
    const Fiber& fiber = cta.fibers[i];
    Dl_info info{};
    const void* base = fiber.caller != nullptr && dladdr(fiber.caller, &info) != 0 ? info.dli_fbase : nullptr;
    std::fprintf(stderr, "  threads %4zu ... %4zu: ", i, end - 1);
    if (fiber.ended)
      std::fprintf(stderr, "ended\n");
    else if (fiber.waits_for == nullptr)
      std::fprintf(stderr, "running\n");
    else
      std::fprintf(stderr, "%s %#llx (addr2line -Cfie %s %#tx)\n", fiber.waits_for,
                   static_cast<unsigned long long>(fiber.detail), info.dli_fname,
                   static_cast<const char*>(fiber.caller) - static_cast<const char*>(base));
    i = end;
  }
  for (const auto& [offset, barrier] : cta.barrier_objects)
    if (!barrier.waiting.empty())
      std::fprintf(stderr, "  barrier object at %#x: phase %u, %u of %u arrivals and %lld bytes are missing\n", offset,
                   barrier.phase, barrier.pending, barrier.expected, static_cast<long long>(barrier.bytes));
}

// --- Threads ---

void switch_to(Fiber& fiber) {
  place = &fiber.place;
  running_fiber = &fiber;
  fiber.waits_for = nullptr;
  flashdma_bwd_switch_stack(&fiber.cta->scheduler_stack, fiber.stack_pointer);
  running_fiber = nullptr;
}
void leave() {
  Fiber& fiber = running();
  flashdma_bwd_switch_stack(&fiber.stack_pointer, fiber.cta->scheduler_stack);
}

void complete_if_all_came(Cta& cta, NamedBarrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived < (barrier.threads != 0 ? barrier.threads : cta.live)) return;
  barrier.arrived = 0;
  ++barrier.phase;
  wake_all(barrier.waiting);
}

/// One of the `threads` that a barrier waits for.
NamedBarrier& arrive_at(int name, unsigned threads) {
  NamedBarrier& barrier = running().cta->barriers.at(static_cast<std::size_t>(name));
  if (barrier.arrived != 0 && barrier.threads != threads) fail("barrier %d with different numbers of threads", name);
  if (threads % kWarpLanes != 0) fail("barrier %d of %u threads", name, threads);
  barrier.threads = threads;
  ++barrier.arrived;
  return barrier;
}

/// What every thread does.
void run_thread() {
  (*device().thread)();
  Fiber& fiber = running();
  if (!fiber.cp_async.empty() || !fiber.cp_async_groups.empty()) fail("a thread ends with cp.async in flight");
  for (const CopyGroup& group : fiber.bulk_groups)
    for (const auto& copy : group)
      if (copy->read) fail("a thread ends with bulk copies that have not read shared memory");
  if (!fiber.bulk.empty()) fail("a thread ends with bulk copies of no group");
  Warp& warp = *fiber.warp;
  fiber.ended = true;
  warp.live &= ~(1u << fiber.place.lane);
  warp.runnable &= ~(1u << fiber.place.lane);
  if (warp.live == 0 && (!warp.products.empty() || !warp.uncommitted.empty()))
    fail("a warp ends with products in flight");
  --fiber.cta->live;
  progress();
  complete_if_all_came(*fiber.cta, fiber.cta->barriers[0]);
  if (fiber.cta->live == 0)
    for (const NamedBarrier& barrier : fiber.cta->barriers)
      if (barrier.arrived != 0) fail("a CTA ends with threads at a barrier that others have not come to");
  leave();
  std::abort();
}

void prepare_stack(Fiber& fiber, std::byte* stack) {
  auto** top = reinterpret_cast<void**>(stack + kStackBytes);
  // As a call would leave it: a return address that is not used, run_thread's, six registers.
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&run_thread);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
}

void list(Warp& warp) {
  if (warp.listed || warp.runnable == 0) return;
  warp.listed = true;
  warp.cta->runnable.push_back(&warp);
}

// --- CTAs ---

void start_cta(Cta& cta, uint3 block, unsigned rank, Cluster& cluster) {
  const LaunchShape& shape = device().shape;
  const unsigned threads = shape.threads.x;
  cta.block = block;
  cta.rank = rank;
  cta.cluster = &cluster;
  cta.live = threads;
  cta.running = true;
  cta.barriers = {};
  cta.barrier_objects.clear();
  cta.register_requests = {};
  cta.unfenced_by.fill(0);
  std::memset(cta.shared, 0xff, shape.shared_bytes);
  cta.fibers.resize(threads);
  cta.warps = std::vector<Warp>((threads + kWarpLanes - 1) / kWarpLanes);
  cta.runnable.clear();
  cta.priorities.resize(cta.warps.size());
  for (int& priority : cta.priorities) priority = static_cast<int>(device().random.below(1000));
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = cta.fibers[i];
    fiber = Fiber{};
    Warp& warp = cta.warps[i / kWarpLanes];
    fiber.cta = &cta;
    fiber.warp = &warp;
    fiber.place = {{i, 0, 0}, block, static_cast<int>(i % kWarpLanes)};
    prepare_stack(fiber, cta.stacks + i * kStackBytes);
    warp.cta = &cta;
    warp.number = static_cast<int>(i / kWarpLanes);
    warp.first = warp.number * static_cast<int>(kWarpLanes);
    warp.lanes = warp.live = warp.runnable |= 1u << i % kWarpLanes;
  }
  for (Warp& warp : cta.warps) list(warp);
}

/// Gives the CTAs of a cluster that has ended the grid's next.
void start_cluster(Cluster& cluster) {
  Device& d = device();
  if (d.started == d.order.size()) return;
  const unsigned first = d.order[d.started++] * d.shape.ctas_per_cluster;
  cluster.arrived = cluster.phase = 0;
  cluster.running = d.shape.ctas_per_cluster;
  cluster.waiting.clear();
  for (unsigned rank = 0; rank < d.shape.ctas_per_cluster; ++rank) {
    const unsigned block = first + rank;
    const dim3& grid = d.shape.grid;
    start_cta(*cluster.ctas[rank], {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y}, rank, cluster);
  }
}

void end_cta(Cta& cta) {
  for (const auto& copy : device().copies) {
    if (copy->reads == &cta && copy->read) fail("a CTA ends while a copy reads its shared memory");
    if (copy->writes == &cta && copy->write) fail("a CTA ends while a copy writes its shared memory");
  }
  for (const unsigned threads : cta.register_requests)
    if (threads % 128 != 0) fail("setmaxnreg was not executed by all threads of a warpgroup");
  cta.running = false;
  if (--cta.cluster->running == 0) start_cluster(*cta.cluster);
}

/// Performs a part of a copy in flight. False: there is none.
bool advance_copy() {
  Device& d = device();
  while (!d.copies.empty()) {
    std::shared_ptr<Copy>& place_of_copy = d.copies[d.random.below(d.copies.size())];
    const std::shared_ptr<Copy> copy = place_of_copy;
    const bool done = !copy->write;
    if (!done) copy->advance();
    if (!copy->write) {
      // Others may have been started meanwhile.
      d.copies.erase(std::find(d.copies.begin(), d.copies.end(), copy));
    }
    if (!done) return true;
  }
  return false;
}

/// Who runs next; nullptr: the grid is done.
Cta* choose_cta() {
  Device& d = device();
  while (true) {
    std::vector<Cta*> able;
    bool any = false;
    for (const Cluster& cluster : d.clusters)
      for (Cta* cta : cluster.ctas) {
        any |= cta->running;
        if (cta->running && !cta->runnable.empty()) able.push_back(cta);
      }
    if (!able.empty()) return able[d.random.below(able.size())];
    if (advance_copy()) continue;
    if (!any) return nullptr;
    fail("nobody can go on");
  }
}

Warp& choose_warp(Cta& cta) {
  Device& d = device();
  std::size_t at = d.random.below(cta.runnable.size());
  if (d.policy.priorities && !d.random.chance(16))
    for (std::size_t i = 0; i < cta.runnable.size(); ++i)
      if (cta.priorities[static_cast<std::size_t>(cta.runnable[i]->number)] >
          cta.priorities[static_cast<std::size_t>(cta.runnable[at]->number)])
        at = i;
  return *cta.runnable[at];
}

/// Runs the CTA's warps until another CTA has its turn. Returns which.  Not inline, as set_thread_pointer().
__attribute__((noinline)) Cta* run_cta(Cta& cta) {
  Device& d = device();
  while (true) {
    if (cta.running && cta.live == 0) end_cta(cta);
    if (d.random.chance(d.policy.copies) || d.looks_in_vain > kImpatient) advance_copy();
    if (d.looks_in_vain > kHopeless) fail("nobody can go on but those that look at memory in vain");
    if (!cta.running || cta.runnable.empty() || d.random.chance(d.policy.switches)) {
      Cta* const next = choose_cta();
      if (next != &cta) return next;
      continue;
    }
    Warp& warp = choose_warp(cta);
    if (!warp.products.empty() && d.random.chance(d.policy.products / 8))
      execute_products(warp, warp.products.size() - 1);
    const unsigned turned = d.random.chance(128) ? kWarpLanes - 1 : 0;
    const unsigned lanes = warp.runnable;  // who is woken meanwhile goes on with the others
    for (unsigned i = 0; i < kWarpLanes; ++i)
      if (const unsigned lane = i ^ turned; (lanes >> lane & 1u) != 0)
        switch_to(cta.fibers[static_cast<std::size_t>(warp.first) + lane]);
    if (warp.runnable == 0) {
      warp.listed = false;
      cta.runnable.erase(std::find(cta.runnable.begin(), cta.runnable.end(), &warp));
    }
  }
}

std::unique_ptr<Cta> new_cta() {
  auto cta = std::make_unique<Cta>();
  void* stacks = mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) fail("no memory for stacks");
  cta->stacks = static_cast<std::byte*>(stacks);
  for (unsigned i = 0; i < kMostThreads; ++i) mprotect(cta->stacks + i * kStackBytes, kPageBytes, PROT_NONE);
  std::binary_semaphore ready{0};
  std::thread owner([&ready, own = cta.get()] {
    own->thread_pointer = __builtin_thread_pointer();
    own->shared = reinterpret_cast<std::byte*>(::shared);
    ready.release();
    while (true) pause();
  });
  owner.detach();
  ready.acquire();
  return cta;
}

/// Not inline: no address of thread-local storage may be kept over this.
__attribute__((noinline)) void set_thread_pointer(void* to) {
  if (syscall(SYS_arch_prctl, ARCH_SET_FS, to) != 0) std::abort();
}

/// Another mixture of early and late in every launch; both extremes occur.
Policy choose_policy(Random& random, bool several) {
  constexpr unsigned kCopies[] = {0, 4, 64, 255};
  constexpr unsigned kProducts[] = {0, 128, 256};
  constexpr unsigned kSwitches[] = {2, 16, 64};
  return {kCopies[random.below(4)], kProducts[random.below(3)], several ? kSwitches[random.below(3)] : 0,
          random.chance(96)};
}

}  // namespace

void fail(const char* format, ...) {
  std::fflush(stdout);
  std::fprintf(stderr, "emulated device: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (running_fiber != nullptr)
    std::fprintf(stderr, "; CTA %u, thread %u", running_fiber->cta->block.x, running_fiber->place.thread.x);
  std::fprintf(stderr, "; seed %llu\n", static_cast<unsigned long long>(device().seed));
  for (const auto& cta : device().ctas)
    if (cta->running) print_waiting(*cta);
  std::fflush(stderr);
  std::abort();
}

Fiber& running() {
  return *running_fiber;
}
Random& random_numbers() {
  return device().random;
}
const Policy& policy() {
  return device().policy;
}
bool diverges() {
  return device().divergent && device().random.chance(64);
}
void progress() {
  device().looks_in_vain = 0;
}

void wake(Fiber& fiber) {
  fiber.warp->runnable |= 1u << fiber.place.lane;
  list(*fiber.warp);
  progress();
}
void wake_all(std::vector<Fiber*>& waiting) {
  for (Fiber* fiber : waiting) wake(*fiber);
  waiting.clear();
  progress();
}

void block(const char* what, std::uint64_t detail, const void* caller) {
  Fiber& fiber = running();
  fiber.waits_for = what;
  fiber.detail = detail;
  fiber.caller = caller;
  fiber.warp->runnable &= ~(1u << fiber.place.lane);
  leave();
}

void yield() {
  Fiber& fiber = running();
  fiber.waits_for = "looks at memory";
  fiber.detail = 0;
  fiber.caller = __builtin_return_address(0);
  ++device().looks_in_vain;
  leave();
}
void memory_changed() {
  progress();
}

Slot* next_slots() {
  Warp& warp = *running().warp;
  return warp.slots[warp.collectives % 2].data();
}

namespace {

/// The lanes of a warp, which meet, know of each other's writes. What has been fenced since is forgotten.
void share_writes(Warp& warp) {
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if ((warp.lanes >> lane & 1u) == 0) continue;
    Writes& own = warp.cta->fibers[static_cast<std::size_t>(warp.first) + lane].unfenced;
    if (own.empty()) continue;
    warp.unfenced.insert(warp.unfenced.end(), own.begin(), own.end());
    own.clear();
  }
  const auto& unfenced_by = warp.cta->unfenced_by;
  std::erase_if(warp.unfenced, [&](const Write& write) { return unfenced_by[write.chunk] != write.writer; });
}

}  // namespace

Slot* meet(const char* what, void (*perform)(Slot*)) {
  Warp& warp = *running().warp;
  if (warp.arrived != 0 && warp.collective != what) fail("lanes of a warp meet at %s and at %s", warp.collective, what);
  Slot* const slots = next_slots();
  const unsigned own = warp.collectives;
  warp.collective = what;
  warp.arrived |= 1u << running().place.lane;
  if (warp.arrived != warp.lanes) {
    while (warp.collectives == own) block(what, 0, __builtin_return_address(0));
    return slots;
  }
  if (perform != nullptr) perform(slots);
  share_writes(warp);
  warp.arrived = 0;
  ++warp.collectives;
  warp.runnable |= warp.lanes;
  list(warp);
  progress();
  leave();  // not ahead of the others
  return slots;
}

void barrier_sync(int name, unsigned threads) {
  NamedBarrier& barrier = arrive_at(name, threads);
  const unsigned own = barrier.phase;
  barrier.waiting.push_back(&running());
  complete_if_all_came(*running().cta, barrier);
  if (barrier.phase != own) leave();  // not ahead of the others
  while (barrier.phase == own) block("barrier.sync", static_cast<std::uint64_t>(name), __builtin_return_address(0));
}
void barrier_arrive(int name, unsigned threads) {
  complete_if_all_came(*running().cta, arrive_at(name, threads));
}

void barrier_cluster_sync() {
  Cluster& cluster = *running().cta->cluster;
  const unsigned own = cluster.phase;
  cluster.waiting.push_back(&running());
  if (++cluster.arrived == device().shape.threads.x * cluster.ctas.size()) {
    cluster.arrived = 0;
    ++cluster.phase;
    wake_all(cluster.waiting);
    leave();  // not ahead of the others
  }
  while (cluster.phase == own) block("barrier.cluster", 0, __builtin_return_address(0));
}

std::uint32_t shared_address(const void* pointer) {
  const Cta& cta = *running().cta;
  const auto offset = static_cast<const std::byte*>(pointer) - cta.shared;
  if (offset < 0 || static_cast<std::size_t>(offset) > device().shape.shared_bytes)
    fail("no pointer to dynamic shared memory");
  return static_cast<std::uint32_t>(offset) | cta.rank << kRankShift;
}
std::uint32_t mapa(std::uint32_t address, int rank) {
  if (static_cast<unsigned>(rank) >= device().shape.ctas_per_cluster) fail("the cluster has no CTA %d", rank);
  return offset_of(address) | static_cast<unsigned>(rank) << kRankShift;
}
Cta& cta_of(std::uint32_t address) {
  const Cluster& cluster = *running().cta->cluster;
  const std::size_t rank = address >> kRankShift;
  if (rank >= cluster.ctas.size()) fail("no address of shared memory: %#x", address);
  Cta& cta = *cluster.ctas[rank];
  if (!cta.running) fail("CTA %zu of the cluster has ended", rank);
  return cta;
}
std::byte* pointer_into(Cta& cta, std::uint32_t offset, std::size_t bytes) {
  if (offset + bytes > device().shape.shared_bytes) fail("past the end of shared memory: %#x", offset);
  if (offset % std::min<std::size_t>(bytes, 16) != 0) fail("misaligned in shared memory: %#x", offset);
  return cta.shared + offset;
}
std::byte* cluster_pointer(std::uint32_t address, std::size_t bytes) {
  return pointer_into(cta_of(address), offset_of(address), bytes);
}
std::byte* shared_pointer(std::uint32_t address, std::size_t bytes) {
  Cta& cta = *running().cta;
  if (address >> kRankShift != cta.rank) fail("an address of another CTA's shared memory: %#x", address);
  return pointer_into(cta, offset_of(address), bytes);
}

void setmaxnreg(int count, bool increase) {
  if (count % 8 != 0 || count < 24 || count > 256) fail("setmaxnreg %d", count);
  ++running().cta->register_requests[increase ? 1 : 0];
}

void Copy::advance() {
  std::function<void()>& next = read ? read : write;
  const std::function<void()> now = std::move(next);
  next = nullptr;
  now();
  progress();
}

void start(const std::shared_ptr<Copy>& copy) {
  Device& d = device();
  if (d.policy.copies == 255 && d.random.chance(128)) return copy->finish();
  d.copies.push_back(copy);
}

void run_grid(const LaunchShape& shape, const std::function<void()>& thread) {
  Device& d = device();
  const std::lock_guard lock(d.launches);
  const unsigned clusters = shape.grid.x * shape.grid.y * shape.grid.z / shape.ctas_per_cluster;
  const std::size_t resident = std::min<std::size_t>(environment_number("FLASHDMA_BWD_EMULATED_RESIDENT", 1), clusters);
  d.shape = shape;
  d.thread = &thread;
  d.policy = choose_policy(d.random, resident * shape.ctas_per_cluster > 1);
  d.looks_in_vain = 0;
  d.order.resize(clusters);
  std::iota(d.order.begin(), d.order.end(), 0u);
  // The order in which CTAs start is not theirs to know.
  if (resident > 1 && d.random.chance(128))
    for (std::size_t i = clusters - 1; i > 0; --i) std::swap(d.order[i], d.order[d.random.below(i + 1)]);
  d.started = 0;
  while (d.ctas.size() < resident * shape.ctas_per_cluster) d.ctas.push_back(new_cta());
  d.clusters.assign(resident, {});
  for (std::size_t i = 0; i < resident * shape.ctas_per_cluster; ++i)
    d.clusters[i / shape.ctas_per_cluster].ctas.push_back(d.ctas[i].get());
  for (Cluster& cluster : d.clusters) start_cluster(cluster);
  void* const own = __builtin_thread_pointer();
  for (Cta* next = choose_cta(); next != nullptr;) {
    set_thread_pointer(next->thread_pointer);
    next = run_cta(*next);
  }
  set_thread_pointer(own);
}

}  // namespace flashdma_bwd::emulated
