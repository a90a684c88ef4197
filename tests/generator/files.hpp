// Files of the tests: where the sources are, and texts.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/temporary_folder.hpp"

namespace flashdma_bwd::generator::test {

std::filesystem::path source_dir();
std::filesystem::path cases_dir();

/// Fails the test if the file cannot be read.
std::string read(const std::filesystem::path& path);
void write(const std::filesystem::path& path, const std::string& text);

/// All files below a folder: relative path to text.
std::map<std::string, std::string> read_tree(const std::filesystem::path& root);

/// The files of a folder whose names end so, in order. Fails the test if there are none.
std::vector<std::filesystem::path> files_ending(const std::filesystem::path& folder, std::string_view ending);

/// NAME.expected beside a case's file, NAME up to its first dot.
std::filesystem::path expected_of(const std::filesystem::path& file);

using testing::TemporaryFolder;

/// Compares a text with a file of expected text. With FLASHDMA_BWD_UPDATE_EXPECTED=1 in the environment the file is
/// rewritten instead, for a person to review.
void check_expected(const std::string& actual, const std::filesystem::path& expected);

}  // namespace flashdma_bwd::generator::test
