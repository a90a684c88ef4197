# Writes records for a small tree of its own and compares them: nothing changed, a kernel's statement changed, a kernel added, the
# tables changed, device code or a part of the launch path that all kernels share changed, or code of two CTAs; several processes, tests and kernels that
# failed, a kernel that generated/ does not have, a record of the older form, and input that cannot be recorded.
file(REMOVE_RECURSE "${SANDBOX}")
file(WRITE "${SANDBOX}/runtime/kernels/common/shared.cuh" "// shared\n")
file(WRITE "${SANDBOX}/runtime/kernels/ampere/main.cuh" "// main\n")
file(WRITE "${SANDBOX}/runtime/src/launch/split.cpp" "// split\n")
file(WRITE "${SANDBOX}/generated/manifest.json" "{\"table_hash\": \"0123\"}\n")
set(unit "${SANDBOX}/generated/kernels/sm80/group.cu")
set(one "FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_one,\n                           KernelConfig{.head_dim = 64})\n")
set(two "FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_two, KernelConfig{.head_dim = 128})\n")
file(WRITE "${unit}" "${one}${two}")
file(WRITE "${SANDBOX}/environment.txt" "gpu=NVIDIA Test\ndriver=1.2\ntoolkit=CUDA 13.0\ncommit=abc\n")
set(record "${SANDBOX}/record.json")
set(results "${SANDBOX}/results.xml")
set(kernels "${SANDBOX}/kernels.txt")

# Runs the script in a mode and requires its return value, 0 or 1, and its output to match.
function(expect_result wanted mode regex)
  execute_process(COMMAND "${CMAKE_COMMAND}" -DMODE=${mode} -DSOURCE=${SANDBOX} -DRECORD=${record} "-DRESULTS=${results}"
                          -DENVIRONMENT=${SANDBOX}/environment.txt -DKERNELS=${kernels} -P "${SCRIPT}" OUTPUT_VARIABLE output
                          ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL wanted OR NOT output MATCHES "${regex}")
    message(FATAL_ERROR "mode ${mode} returned ${result} and printed\n${output}\nwhich does not match\n${wanted} ${regex}")
  endif()
endfunction()

function(expect mode regex)
  expect_result(0 ${mode} "${regex}")
endfunction()

# Requires the script to refuse its input in these words, broken into lines as CMake likes, and to leave the record as it is.
function(expect_refusal regex)
  file(READ "${record}" before)
  string(REPLACE " " "[ \n]+" regex "${regex}")
  expect_result(1 write "CMake Error.*${regex}")
  file(READ "${record}" after)
  if(NOT before STREQUAL after)
    message(FATAL_ERROR "refused input changed the record to\n${after}")
  endif()
endfunction()

function(expect_in_record wanted)
  file(READ "${record}" text)
  string(FIND "${text}" "${wanted}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "the record lacks\n${wanted}\nin\n${text}")
  endif()
endfunction()

# Requires the value of a member, named by the arguments from the second on.
function(expect_member wanted)
  file(READ "${record}" text)
  string(JSON value GET "${text}" ${ARGN})
  if(NOT value STREQUAL wanted)
    message(FATAL_ERROR "${ARGN} is ${value} in the record, not ${wanted}")
  endif()
endfunction()

# Writes ctest's file of these test cases: "name status children" each.
function(write_results)
  list(LENGTH ARGN count)
  set(text "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"(empty)\"\n\ttests=\"${count}\"\n\tfailures=\"0\"\n\t>\n")
  foreach(case IN LISTS ARGN)
    string(REGEX MATCH "^([^ ]+) ([^ ]+) ?(.*)$" matched "${case}")
    string(APPEND text "\t<testcase name=\"${CMAKE_MATCH_1}\" classname=\"${CMAKE_MATCH_1}\" time=\"0.1\" status=\"${CMAKE_MATCH_2}\">\n"
                       "\t\t${CMAKE_MATCH_3}\n\t\t<system-out>&lt;failure [a]\n</system-out>\n\t</testcase>\n")
  endforeach()
  file(WRITE "${results}" "${text}</testsuite>\n")
endfunction()

set(unknown_commit "whether host code or tests have changed since is not known: git has no commit abc here\n")
expect(compare "no GPU run is recorded: all 2 kernels")
write_results("gpu.rows run" "gpu.compact-masks run")
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm80_two 2 0\n")
expect(write "2 tests passed, 0 failed, 0 skipped. 2 of 2 kernels passed\n$")
expect(compare "NVIDIA Test, driver 1.2, CUDA 13.0, commit abc, [-0-9]+: 2 tests passed, 0 failed, 0 skipped\n5 comparisons there, \
largest error 17 % of the bar: bwd_sm80_one\n${unknown_commit}all 2 kernels are as they were then\n$")
file(WRITE "${unit}" "${one}FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_two, KernelConfig{.head_dim = 96})\n")
expect(compare "changed since: 1\n  bwd_sm80_two\n$")
file(WRITE "${unit}" "${one}${two}FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_three, KernelConfig{.head_dim = 32})\n")
expect(compare "did not run there: 1\n  bwd_sm80_three\n$")
file(WRITE "${unit}" "${one}${two}")
file(WRITE "${SANDBOX}/generated/manifest.json" "{\"table_hash\": \"4567\"}\n")
expect(compare "the tables have changed since, from 0123 to 4567.*all 2 kernels are as they were then")
file(WRITE "${SANDBOX}/runtime/src/launch/split.cpp" "// changed\n")
expect(compare "changed since: 2\n  bwd_sm80_one\n  bwd_sm80_two\n$")
file(WRITE "${SANDBOX}/runtime/src/launch/split.cpp" "// split\n")
file(WRITE "${SANDBOX}/runtime/kernels/common/shared.cuh" "// changed\n")
expect(compare "changed since: 2\n  bwd_sm80_one\n  bwd_sm80_two\n$")

# A run of one kernel.
file(WRITE "${kernels}" "bwd_sm80_one 3 17\n")
expect(write "wrote.*1 of 2 kernels passed")
expect(compare "did not run there: 1\n  bwd_sm80_two\n$")

# Every result that ctest knows. A test that it could not start is none that was skipped.
write_results("gpu.rows run" "gpu.masks fail <failure message=\"\"/>" "gpu.large notrun <skipped message=\"SKIP_RETURN_CODE=77\"/>"
              "gpu.ends run <failure message=\"\"/>" "gpu.gone notrun <skipped message=\"Unable to find executable\"/>" "gpu.off disabled")
expect(write "1 tests passed, 3 failed, 2 skipped")
expect_in_record("
  \"passed\": 1,
  \"failed\": 3,
  \"skipped\": 2,
  \"tests\": {
    \"gpu.rows\": \"passed\",
    \"gpu.masks\": \"failed\",
    \"gpu.large\": \"skipped\",
    \"gpu.ends\": \"failed\",
    \"gpu.gone\": \"failed\",
    \"gpu.off\": \"skipped\"
  },
  \"failed_kernels\": [],
")
expect(compare "3 failed, 2 skipped\nfailed there: gpu.ends, gpu.gone, gpu.masks\nskipped there: gpu.large, gpu.off\n")

# Parts of one run: a test that failed in one of them has failed, and one that ran in any was not skipped.
set(first_results "${results}")
set(results "${SANDBOX}/more_results.xml")
write_results("gpu.rows run <failure message=\"\"/>" "gpu.masks run" "gpu.large run" "gpu.off disabled" "gpu.items run")
set(results "${first_results};${results}")
expect(write "2 tests passed, 4 failed, 1 skipped")
expect_in_record("
  \"tests\": {
    \"gpu.rows\": \"failed\",
    \"gpu.masks\": \"failed\",
    \"gpu.large\": \"passed\",
    \"gpu.ends\": \"failed\",
    \"gpu.gone\": \"failed\",
    \"gpu.off\": \"skipped\",
    \"gpu.items\": \"passed\"
  },
")
set(results "${first_results}")

# Several processes: comparisons add up, the largest error counts, whichever process had it.
write_results("gpu.rows run")
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm80_two 2 9\nbwd_sm80_two 40 100\nbwd_sm80_one 300 9\nbwd_sm80_one 9 0\n")
expect(write "2 of 2 kernels passed\n$")
expect_member(312 kernels bwd_sm80_one comparisons)
expect_member(17 kernels bwd_sm80_one largest_error_percent_of_bar)
expect_member(42 kernels bwd_sm80_two comparisons)
expect_member(100 kernels bwd_sm80_two largest_error_percent_of_bar)
expect(compare "354 comparisons there, largest error 100 % of the bar: bwd_sm80_two\n${unknown_commit}all 2 kernels are as they were then\n$")
file(STRINGS "${record}" lines REGEX "\"bwd_sm80_one\": {\"hash\": \"[0-9a-f]+\", \"comparisons\": 312, \"largest_error_percent_of_bar\": 17},$")
if(NOT lines)
  message(FATAL_ERROR "the record has no line of its own for bwd_sm80_one")
endif()

# A kernel that failed in one process is none that passed, whatever the others say before and after.
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm80_two 2 9\nbwd_sm80_two 3 failed\nbwd_sm80_two 2 9\n")
expect(write "1 of 2 kernels passed\nkernels that failed: 1\n  bwd_sm80_two\n$")
expect_in_record("  \"failed_kernels\": [\n    \"bwd_sm80_two\"\n  ],\n")
expect_in_record("  \"kernels\": {\n    \"bwd_sm80_one\": {")
expect(compare "3 comparisons there, largest error 17 % of the bar: bwd_sm80_one\n${unknown_commit}kernels that failed there: 1\n  bwd_sm80_two\n$")

# A kernel without a unit in generated/ has no hash: it is named and left out.
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm80_two 2 9\nbwd_sm80_gone 5 99\n")
expect(write "2 of 2 kernels passed\nkernels that ran and are not in generated/[^\n]*: 1\n  bwd_sm80_gone\n$")
expect(compare "5 comparisons there, largest error 17 % of the bar: bwd_sm80_one\n${unknown_commit}all 2 kernels")

# What cannot be recorded.
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm80_two\n")
expect_refusal("kernels.txt:2: \"bwd_sm80_two\" is not a kernel's name")
file(WRITE "${kernels}" "bwd_sm80_one 3 inf\n")
expect_refusal("kernels.txt:1: \"bwd_sm80_one 3 inf\" is not a kernel's name")
file(WRITE "${kernels}" "")
expect_refusal("missing or empty: no kernel took part in a comparison")
file(REMOVE "${kernels}")
expect_refusal("missing or empty: no kernel took part in a comparison")
file(WRITE "${kernels}" "bwd_sm80_one 3 17\n")
write_results()
expect_refusal("announces 0 tests and has 0")
file(WRITE "${results}" "<testsuite tests=\"2\">\n<testcase name=\"gpu.rows\" status=\"run\">\n</testcase>\n")
expect_refusal("announces 2 tests and has 1")

# The older form: counts of tests and a hash a kernel.
file(READ "${record}" text)
string(JSON hash GET "${text}" kernels bwd_sm80_one hash)
file(WRITE "${record}" "{\"gpu\": \"Old\", \"driver\": \"1\", \"toolkit\": \"CUDA 12\", \"commit\": \"abc\", \"table_hash\": \"4567\", \
\"date\": \"2001-01-01\", \"passed\": 1, \"failed\": 0, \"skipped\": 0,\n\"kernels\": {\"bwd_sm80_one\": \"${hash}\", \"bwd_sm80_two\": \"00\"}}\n")
expect(compare "skipped\nthe record is of an older form and lacks the result of each test, and the comparisons and largest errors of 2 \
kernels. run ./dev gpu-test where there is a GPU\n${unknown_commit}kernels that changed since: 1\n  bwd_sm80_two\n$")

# hopper/pair is what kernels of two CTAs are made of and hopper/transposed what those of 96 keys are, and no others; hopper/owners is of both.
file(REMOVE "${record}")
foreach(file main pair/main transposed/main owners/main)
  file(WRITE "${SANDBOX}/runtime/kernels/hopper/${file}.cuh" "// ${file}\n")
endforeach()
file(WRITE "${unit}" "FLASHDMA_BWD_HOPPER_KERNEL(bwd_sm90_one_nobias, KernelConfig{})\n"
                     "FLASHDMA_BWD_HOPPER_KERNEL(bwd_sm90_three_hopper_m64n96_nobias, KernelConfig{})\n"
                     "FLASHDMA_BWD_HOPPER_KERNEL(bwd_sm90_two_pair_nobias, KernelConfig{})\n${one}")
file(WRITE "${kernels}" "bwd_sm80_one 3 17\nbwd_sm90_one_nobias 3 17\nbwd_sm90_three_hopper_m64n96_nobias 3 17\nbwd_sm90_two_pair_nobias 3 17\n")
write_results("gpu.rows run")
expect(write "4 of 4 kernels passed")
function(expect_changed_by file names)
  file(READ "${SANDBOX}/runtime/kernels/hopper/${file}" before)
  file(WRITE "${SANDBOX}/runtime/kernels/hopper/${file}" "// changed\n")
  list(LENGTH names count)
  list(JOIN names "\n  " lines)
  expect(compare "changed since: ${count}\n  ${lines}\n$")
  file(WRITE "${SANDBOX}/runtime/kernels/hopper/${file}" "${before}")
endfunction()
expect_changed_by(pair/main.cuh "bwd_sm90_two_pair_nobias")
expect_changed_by(transposed/main.cuh "bwd_sm90_three_hopper_m64n96_nobias")
expect_changed_by(owners/main.cuh "bwd_sm90_three_hopper_m64n96_nobias;bwd_sm90_two_pair_nobias")
expect_changed_by(main.cuh "bwd_sm90_one_nobias;bwd_sm90_three_hopper_m64n96_nobias;bwd_sm90_two_pair_nobias")

# Host code and tests that have changed since the record's commit, where git knows it.
find_program(GIT git REQUIRED)
foreach(file runtime/src/arguments.cpp runtime/src/notes.txt tests/gpu/masks_test.cpp tests/support/problem.hpp)
  file(WRITE "${SANDBOX}/${file}" "// first\n")
endforeach()
foreach(command "init -q" "add -A" "-c user.name=a -c user.email=a@b commit -qm a")
  separate_arguments(command)
  execute_process(COMMAND "${GIT}" ${command} WORKING_DIRECTORY "${SANDBOX}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND "${GIT}" rev-parse HEAD WORKING_DIRECTORY "${SANDBOX}" OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE)
file(WRITE "${SANDBOX}/environment.txt" "gpu=NVIDIA Test\ndriver=1.2\ntoolkit=CUDA 13.0\ncommit=${commit}\n")
expect(write "4 of 4 kernels passed")
expect(compare "bwd_sm80_one\nall 4 kernels are as they were then\n$")
foreach(file runtime/src/arguments.cpp runtime/src/notes.txt tests/gpu/masks_test.cpp tests/support/problem.hpp)
  file(WRITE "${SANDBOX}/${file}" "// second\n")
endforeach()
expect(compare "host code that may give kernels other arguments has changed since: runtime/src/arguments.cpp\ntests have changed since, \
whose new cases did not run there: tests/gpu/masks_test.cpp, tests/support/problem.hpp\nall 4 kernels")
