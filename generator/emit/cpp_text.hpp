// C++ expressions for the values of kernel_table.hpp.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>

namespace flashdma_bwd::generator {

std::string cpp_string(std::string_view text);
std::string cpp_tile(const TileConfig& tile);
/// `tile` is the expression of the configuration's tile.
std::string cpp_config(const KernelConfig& config, const std::string& tile);
/// Only what differs from a When that admits everything.
std::string cpp_when(const When& when);

}  // namespace flashdma_bwd::generator
