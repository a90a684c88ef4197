// From a problem and a GPU to a compiled kernel: overrides, selection, look-up. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>

#include "dispatch_table.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "selection/select_kernel.hpp"

namespace flashdma_bwd {

/// Who chose the kernel.
enum class Decision : std::uint8_t {
  table,
  argument,                  ///< flashdma_bwd_arguments.kernel
  environment_kernel,        ///< FLASHDMA_BWD_KERNEL
  environment_architecture,  ///< the rows of FLASHDMA_BWD_ARCH
};

struct Request {
  Problem problem;
  DeviceTraits device;
  std::string_view kernel;  ///< of the arguments; empty: none
  bool table_only = false;  ///< ignore the environment
};

struct Resolution {
  Decision decision = Decision::table;
  KernelConfig config;
  const KernelEntry* kernel = nullptr;  ///< nullptr if it is not compiled in
  const Row* row = nullptr;             ///< nullptr if a kernel was named
  int tier = 0;
  CodeForm form = CodeForm::native;
};

/// The file of the row that decided, or the name of what named the kernel. Ends in a NUL.
const char* deciding_place(const Resolution& resolution);

/// Fills `resolution` as far as it gets: with NOT_COMPILED, everything but the kernel is there.
Check resolve(const DispatchTable& table, const Environment& environment, const Request& request,
              Resolution& resolution);

/// The same as text: who decided, every candidate row, and the outcome.
std::string explain_resolution(const DispatchTable& table, const Environment& environment, const Request& request);

}  // namespace flashdma_bwd
