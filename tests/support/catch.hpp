// Catch2, version 2 or 3, whichever is installed. Tests use TEST_CASE, SECTION, REQUIRE, CHECK, INFO and FAIL, which
// both have.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define FLASHDMA_BWD_CATCH_VERSION 3
#elif __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#define FLASHDMA_BWD_CATCH_VERSION 2
#else
#error "Catch2 was not found: install it (Debian and Ubuntu: apt install catch2) or turn FLASHDMA_BWD_BUILD_TESTS off"
#endif
