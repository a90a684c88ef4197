# Writes a record for a small tree of its own and compares it: nothing changed, a kernel's statement changed, a kernel added, and
# device code that all kernels share changed.
file(REMOVE_RECURSE "${SANDBOX}")
file(WRITE "${SANDBOX}/runtime/kernels/common/shared.cuh" "// shared\n")
file(WRITE "${SANDBOX}/runtime/kernels/ampere/main.cuh" "// main\n")
set(unit "${SANDBOX}/generated/kernels/sm80/group.cu")
set(one "FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_one,\n                           KernelConfig{.head_dim = 64})\n")
set(two "FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_two, KernelConfig{.head_dim = 128})\n")
file(WRITE "${unit}" "${one}${two}")
file(WRITE "${SANDBOX}/results.xml" "<testsuite name=\"x\"\n\ttests=\"5\"\n\tfailures=\"1\"\n\tdisabled=\"0\"\n\tskipped=\"2\"\n>")
file(WRITE "${SANDBOX}/environment.txt" "gpu=NVIDIA Test\ndriver=1.2\ntoolkit=CUDA 13.0\ncommit=abc\nkernels=\n")
set(common -DSOURCE=${SANDBOX} -DRECORD=${SANDBOX}/record.json)

# Runs the script in a mode and requires its output to match.
function(expect mode regex)
  execute_process(COMMAND "${CMAKE_COMMAND}" -DMODE=${mode} ${common} -DRESULTS=${SANDBOX}/results.xml
                          -DENVIRONMENT=${SANDBOX}/environment.txt -P "${SCRIPT}" OUTPUT_VARIABLE output ERROR_VARIABLE output
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT output MATCHES "${regex}")
    message(FATAL_ERROR "mode ${mode} returned ${result} and printed\n${output}\nwhich does not match\n${regex}")
  endif()
endfunction()

expect(compare "no GPU run is recorded: all 2 kernels")
expect(write "2 tests passed, 1 failed, 2 skipped")
expect(compare "NVIDIA Test, driver 1.2, CUDA 13.0, commit abc.*all 2 kernels are as they were then")
file(WRITE "${unit}" "${one}FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_two, KernelConfig{.head_dim = 96})\n")
expect(compare "changed since: 1\n  bwd_sm80_two\n$")
file(WRITE "${unit}" "${one}${two}FLASHDMA_BWD_AMPERE_KERNEL(bwd_sm80_three, KernelConfig{.head_dim = 32})\n")
expect(compare "did not run there: 1\n  bwd_sm80_three\n$")
file(WRITE "${unit}" "${one}${two}")
file(WRITE "${SANDBOX}/runtime/kernels/common/shared.cuh" "// changed\n")
expect(compare "changed since: 2\n  bwd_sm80_one\n  bwd_sm80_two\n$")
file(WRITE "${SANDBOX}/environment.txt" "gpu=NVIDIA Test\ndriver=1.2\ntoolkit=CUDA 13.0\ncommit=abd\nkernels=bwd_sm80_one\n")
expect(write "wrote")
expect(compare "did not run there: 1\n  bwd_sm80_two\n$")
