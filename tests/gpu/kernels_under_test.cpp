// Names are taken apart here by their documented form, not by the library's own parser.
#include "gpu/kernels_under_test.hpp"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {
namespace {

/// Whether a name holds the parts of a text, which stars separate, one after the other.
bool holds_in_order(std::string_view name, std::string_view parts) {
  while (true) {
    const std::size_t star = parts.find('*');
    const std::string_view part = parts.substr(0, star);
    const std::size_t at = name.find(part);
    if (at == std::string_view::npos) return false;
    if (star == std::string_view::npos) return true;
    name.remove_prefix(at + part.size());
    parts.remove_prefix(star + 1);
  }
}

}  // namespace

KernelName::KernelName(std::string_view name) : text(name) {
  std::vector<std::string> parts(1);
  for (char c : name) {
    if (c == '_')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  softcap = parts.back() == "softcap";
  if (softcap) parts.pop_back();
  if (parts.size() < 6 || parts[0] != "bwd") throw std::runtime_error("not a canonical kernel name: " + text);
  architecture = parts[1];
  head_dim = parts[2];
  data_type = parts[3];
  bias = parts.back();
}

bool KernelName::serves_what(const KernelName& other) const {
  return head_dim == other.head_dim && data_type == other.data_type && bias == other.bias && softcap == other.softcap;
}

bool KernelName::is_hopper() const {
  return text.find("_hopper_") != std::string::npos;
}

bool KernelName::copies_bias() const {
  return bias == "tilebias" && is_hopper();
}

bool copies_move_bias(const Arguments& a) {
  // A tile bias keeps the natural layout, unless another is asked for.
  const bool natural = a.plan != nullptr ? a.plan->layout == FLASHDMA_BWD_LAYOUT_NATURAL
                                         : a.mask.data == nullptr || a.mask_layout == FLASHDMA_BWD_MASK_AUTO ||
                                               a.mask_layout == FLASHDMA_BWD_MASK_NATURAL;
  const auto movable = [&](const PairTensor& t) {
    const bool every_pair = t.rows == a.seqlen_q && t.columns == a.seqlen_k && t.rows > 0;
    const bool row_strides = t.rows == 1 || (t.stride_row > 0 && t.stride_row % 8 == 0);
    const bool other_strides = (t.batch == 1 || t.stride_batch % 8 == 0) && (t.heads == 1 || t.stride_head % 8 == 0);
    return every_pair && row_strides && other_strides && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  };
  if (!natural || !movable(a.bias)) return false;
  const PairTensor& d = a.d_bias;
  if (d.data == nullptr) return true;
  const bool shared = d.batch != a.batch || d.heads != a.heads;  // added up elsewhere
  return d.columns % 8 == 0 && (shared || movable(d));
}

std::vector<KernelName> kernels_under_test() {
  const char* parts = std::getenv("FLASHDMA_BWD_TEST_KERNELS");
  std::vector<KernelName> names;
  for (std::string_view name : kernels())
    if (parts == nullptr || holds_in_order(name, parts)) names.emplace_back(name);
  return names;
}

std::vector<KernelName> kernels_for(const Arguments& arguments) {
  Selection selection{};
  if (Status status = select(arguments, selection); !status) throw std::runtime_error("select: " + status.message());
  std::vector<KernelName> names{KernelName(selection.kernel)};
  const bool copies = copies_move_bias(arguments);
  for (KernelName& kernel : kernels_under_test())
    if (kernel.text != names.front().text && kernel.serves_what(names.front()) && (copies || !kernel.copies_bias()))
      names.push_back(std::move(kernel));
  return names;
}

ProblemSpec problem_for(const KernelName& kernel) {
  ProblemSpec spec;
  spec.name = "base";
  spec.data_type = kernel.data_type == "fp16" ? FLASHDMA_BWD_FP16 : FLASHDMA_BWD_BF16;
  spec.head_dim = std::stoi(kernel.head_dim.substr(1));
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 256;
  spec.seqlen_k = 384;
  spec.softcap = kernel.softcap ? 3.0f : 0.0f;
  spec.bias.present = kernel.bias != "nobias";
  spec.bias.shape = {.heads = PairHeads::kv, .rows = kernel.bias == "tilebias"};
  return spec;
}

void make_bias_movable(ProblemSpec& spec) {
  spec.bias.shape.heads = PairHeads::query;
  spec.bias.row_padding = spec.bias.gradient_row_padding = (8 - spec.seqlen_k % 8) % 8;
  spec.mask.shape.rows = true;
}

void check_all_were_asked_for(const std::set<std::string>& asked_for) {
  CHECK(!asked_for.empty());
  for (const KernelName& kernel : kernels_under_test()) {
    INFO(kernel.text);
    CHECK(asked_for.count(kernel.text) == 1);
  }
}

bool not_runnable_here(const Status& status) {
  // Any other reason, such as that it does not serve the problem, is a failure of the test.
  const auto says = [&](const char* text) { return status.message().find(text) != std::string::npos; };
  return status.code() == FLASHDMA_BWD_OVERRIDE_ERROR && (says("machine code") || says("bytes of shared memory"));
}

}  // namespace flashdma_bwd::testing
