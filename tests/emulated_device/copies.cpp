// Copies that a thread starts and does not wait for: cp.async, and those of the asynchronous proxy by boxes of tensor
// maps or in bulk. A copy reads and writes at any time between its start and the wait for it.
#include <algorithm>

#include "scheduler.hpp"
#include "tensor_map.hpp"

namespace flashdma_bwd::emulated {
namespace {

constexpr std::uint32_t kChunk = 16;

void load(const AsyncLoad& copy) {
  std::byte* const to = shared_pointer(copy.destination, kChunk);
  if (copy.valid)
    std::memcpy(to, copy.source, kChunk);
  else
    std::memset(to, 0, kChunk);
  wrote_shared(copy.destination, kChunk);
}

TensorMap map_of(const void* memory, int dimensions) {
  TensorMap map;
  std::memcpy(&map, memory, sizeof map);
  if (map.mark != kMapMark) fail("no tensor map");
  if (map.dimensions != dimensions) fail("a copy of %d dimensions by a map of %d", dimensions, map.dimensions);
  return map;
}

/// A box of a map.
struct Box {
  TensorMap map;
  std::array<int, 5> at{};

  std::size_t row_bytes() const { return std::size_t{map.box[0]} * map.element_bytes; }
  std::uint32_t bytes() const {
    std::size_t all = row_bytes();
    for (int i = 1; i < map.dimensions; ++i) all *= map.box[static_cast<std::size_t>(i)];
    return static_cast<std::uint32_t>(all);
  }
  /// A copy engine has been seen to fault for such boxes (tensor_maps.hpp).
  void check_touches_tensor() const {
    for (std::size_t i = 0; i < map.dimensions; ++i)
      if (at[i] + std::int64_t{map.box[i]} <= 0 || at[i] >= static_cast<std::int64_t>(map.sizes[i]))
        fail("a box wholly outside its tensor: it begins at %d of %llu in dimension %zu", at[i],
             static_cast<unsigned long long>(map.sizes[i]), i);
  }
  /// Calls visit(offset in the box, address or nullptr outside of the tensor) for every element.
  template <class Visit>
  void visit(Visit&& each) const {
    const std::size_t rows = bytes() / row_bytes();
    for (std::size_t row = 0; row < rows; ++row) {
      std::byte* address = map.data;
      bool inside = true;
      std::size_t rest = row;
      for (std::size_t i = 1; i < map.dimensions; ++i) {
        const std::int64_t coordinate = at[i] + static_cast<std::int64_t>(rest % map.box[i]);
        rest /= map.box[i];
        inside = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map.sizes[i]);
        address += coordinate * static_cast<std::int64_t>(map.strides[i - 1]);
      }
      for (std::size_t element = 0; element < map.box[0]; ++element) {
        const std::int64_t coordinate = at[0] + static_cast<std::int64_t>(element);
        const bool there = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map.sizes[0]);
        each(row * row_bytes() + element * map.element_bytes,
             there ? address + coordinate * map.element_bytes : nullptr);
      }
    }
  }
  /// Where an element of the box is in shared memory, if the box begins at `offset`.
  std::uint32_t place_of(std::uint32_t offset, std::size_t element) const {
    return swizzled(offset + static_cast<std::uint32_t>(element), map.swizzle_bytes);
  }
};

Box box_of(const void* memory, const int* at, int dimensions, std::uint32_t address) {
  Box box{map_of(memory, dimensions), {}};
  std::copy(at, at + dimensions, box.at.begin());
  box.check_touches_tensor();
  if (offset_of(address) % 128 != 0) fail("a box at %#x of shared memory: not a multiple of 128", offset_of(address));
  return box;
}

/// Starts a copy of the thread's bulk group.
void start_bulk(Copy copy) {
  const auto shared = std::make_shared<Copy>(std::move(copy));
  running().bulk.push_back(shared);
  start(shared);
}

void check_bulk(std::uint32_t bytes, std::uint32_t source) {
  if (bytes % kChunk != 0 || bytes == 0) fail("a bulk copy of %u bytes", bytes);
  shared_pointer(source, kChunk);
}

std::vector<std::byte> bytes_at(Cta& cta, std::uint32_t offset, std::uint32_t bytes) {
  std::vector<std::byte> values(bytes);
  read_shared(cta, offset, bytes, values.data());
  return values;
}

}  // namespace

void cp_async_16(std::uint32_t destination, const void* source, bool valid) {
  shared_pointer(destination, kChunk);
  if (reinterpret_cast<std::uintptr_t>(source) % kChunk != 0) fail("cp.async from a misaligned address");
  const AsyncLoad copy{destination, source, valid};
  if (random_numbers().chance(policy().products / 2))
    load(copy);
  else
    running().cp_async.push_back(copy);
}
void cp_async_commit_group() {
  running().cp_async_groups.push_back(std::move(running().cp_async));
  running().cp_async.clear();
}
void cp_async_wait_group(int pending) {
  auto& groups = running().cp_async_groups;
  for (; groups.size() > static_cast<std::size_t>(pending); groups.pop_front())
    for (const AsyncLoad& copy : groups.front()) load(copy);
}

void copy_box_to_shared(std::uint32_t destination, const void* map, const int* at, int dimensions,
                        std::uint32_t barrier, unsigned ctas) {
  const Box box = box_of(map, at, dimensions, destination);
  if (ctas == 0) ctas = 1u << (destination >> kRankShift);
  for (unsigned rank = 0; ctas >> rank != 0; ++rank) {
    if ((ctas >> rank & 1u) == 0) continue;
    Cta& cta = cta_of(rank << kRankShift);
    const std::uint32_t offset = offset_of(destination);
    pointer_into(cta, offset + box.bytes() - kChunk, kChunk);
    auto copy = std::make_shared<Copy>();
    copy->writes = &cta;
    copy->write = [box, &cta, offset, barrier_offset = offset_of(barrier)] {
      const std::size_t bytes = box.map.element_bytes;
      box.visit([&](std::size_t element, const std::byte* from) {
        std::byte* const to = cta.shared + box.place_of(offset, element);
        if (from != nullptr)
          std::memcpy(to, from, bytes);
        else
          std::memset(to, 0, bytes);
      });
      complete_bytes(cta, barrier_offset, box.bytes());
    };
    start(copy);
  }
}

void copy_box_to_global(const void* map, const int* at, int dimensions, std::uint32_t source) {
  const Box box = box_of(map, at, dimensions, source);
  check_bulk(box.bytes(), source);
  Cta& cta = *running().cta;
  const auto values = std::make_shared<std::vector<std::byte>>(box.bytes());
  const std::size_t bytes = box.map.element_bytes;
  const auto read = [box, &cta, offset = offset_of(source), values] {
    for (std::size_t chunk = 0; chunk < values->size(); chunk += kChunk)
      read_shared(cta, box.place_of(offset, chunk), kChunk, values->data() + chunk);
  };
  const auto write = [box, values, bytes] {
    box.visit([&](std::size_t element, std::byte* to) {
      if (to != nullptr) std::memcpy(to, values->data() + element, bytes);
    });
  };
  start_bulk({read, write, &cta, nullptr});
}

void copy_in_cluster(std::uint32_t destination, std::uint32_t source, std::uint32_t bytes, std::uint32_t barrier) {
  check_bulk(bytes, source);
  cluster_pointer(destination + bytes - kChunk, kChunk);
  if (destination >> kRankShift != barrier >> kRankShift) fail("a copy to one CTA and a barrier object of another");
  Cta& from = *running().cta;
  Cta& to = cta_of(destination);
  auto copy = std::make_shared<Copy>();
  const auto values = std::make_shared<std::vector<std::byte>>();
  copy->reads = &from;
  copy->writes = &to;
  copy->read = [&from, offset = offset_of(source), bytes, values] { *values = bytes_at(from, offset, bytes); };
  copy->write = [&to, offset = offset_of(destination), barrier_offset = offset_of(barrier), values] {
    std::memcpy(to.shared + offset, values->data(), values->size());
    complete_bytes(to, barrier_offset, static_cast<std::uint32_t>(values->size()));
  };
  start(copy);
}

void add_bulk(float* destination, std::uint32_t source, std::uint32_t bytes) {
  check_bulk(bytes, source);
  if (reinterpret_cast<std::uintptr_t>(destination) % kChunk != 0) fail("a bulk addition to a misaligned address");
  Cta& cta = *running().cta;
  const auto values = std::make_shared<std::vector<std::byte>>();
  const auto read = [&cta, offset = offset_of(source), bytes, values] { *values = bytes_at(cta, offset, bytes); };
  const auto write = [destination, values] {
    for (std::size_t i = 0; i < values->size() / sizeof(float); ++i) {
      float value;
      std::memcpy(&value, values->data() + i * sizeof(float), sizeof(float));
      destination[i] += value;
    }
  };
  start_bulk({read, write, &cta, nullptr});
}

void bulk_commit_group() {
  running().bulk_groups.push_back(std::move(running().bulk));
  running().bulk.clear();
}
void bulk_wait_group(int pending, bool read_only) {
  auto& groups = running().bulk_groups;
  const std::size_t left = std::min(groups.size(), static_cast<std::size_t>(pending));
  for (std::size_t i = 0; i < groups.size() - left; ++i)
    for (const auto& copy : groups[i])
      if (read_only)
        copy->finish_reading();
      else
        copy->finish();
  if (!read_only) groups.erase(groups.begin(), groups.end() - static_cast<std::ptrdiff_t>(left));
}

void wrote_shared(std::uint32_t address, std::size_t bytes) {
  Fiber& fiber = running();
  const std::uint32_t offset = offset_of(address);
  for (std::uint32_t chunk = offset / kChunk; chunk * kChunk < offset + bytes; ++chunk) {
    const auto writer = static_cast<std::uint16_t>(fiber.place.thread.x + 1);
    if (std::exchange(fiber.cta->unfenced_by[chunk], writer) != writer) fiber.unfenced.push_back({chunk, writer});
  }
}
void fence_proxy_async() {
  Fiber& fiber = running();
  const auto fence = [&](const Writes& writes) {
    for (const Write& write : writes)
      if (fiber.cta->unfenced_by[write.chunk] == write.writer) fiber.cta->unfenced_by[write.chunk] = 0;
  };
  fence(fiber.unfenced);
  fence(fiber.warp->unfenced);
  for (const auto& writes : fiber.learned) fence(*writes);
  fiber.unfenced.clear();
  fiber.learned.clear();
}
void read_shared(Cta& cta, std::uint32_t offset, std::size_t bytes, void* to) {
  for (std::uint32_t i = 0; i < bytes; i += kChunk) {
    const std::byte* const from = pointer_into(cta, offset + i, kChunk);
    if (cta.unfenced_by[(offset + i) / kChunk] == 0)
      std::memcpy(static_cast<std::byte*>(to) + i, from, kChunk);
    else
      std::memset(static_cast<std::byte*>(to) + i, 0xff, kChunk);
  }
}

}  // namespace flashdma_bwd::emulated
