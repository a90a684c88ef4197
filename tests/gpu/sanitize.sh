#!/usr/bin/env bash
# compute-sanitizer over the GPU tests: memcheck and racecheck of every kernel in [rows], of walks of many steps, and of
# plans that are reordered.
#
#     sanitize.sh <test_gpu> [<runs side by side> [<pattern of runs>]]
#
# A run is a line `tool kernels tests`, such as `racecheck sm90_d128_bf16 [rows]`; `all` are all kernels. Prints what each found;
# exits with 1 if one found anything or failed. All of them take hours of one core; sm89's kernels are sm86's.
set -euo pipefail

fail() {
  echo "sanitize.sh: $1" >&2
  exit 2
}

[ $# -gt 0 ] || fail "say which program: tests/gpu/sanitize.sh build/gpu/tests/gpu/test_gpu"
test_gpu=$1
jobs=${2:-$(nproc)}
pattern=${3:-.}

runs() {
  local tool architecture head_dim type
  for tool in memcheck racecheck; do
    echo "$tool all plans that the GPU reorders are those of the model"
    echo "$tool sm90_d128_bf16 sparse masks of long sequences"
    for architecture in sm90 sm80 sm86; do
      for head_dim in 256 192 128 96 64 32; do
        for type in bf16 fp16; do echo "$tool ${architecture}_d${head_dim}_$type [rows]"; done
      done
    done
  done
}

run() {
  local tool=$1 kernels=$2 tests=$3 log begin=$SECONDS status=0
  log=$(mktemp)
  [ "$kernels" = all ] || export FLASHDMA_BWD_TEST_KERNELS=$kernels
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$test_gpu" "$tests" > "$log" 2>&1 || status=$?
  echo "$tool $kernels $tests: exit $status, $(grep -h 'SUMMARY' "$log" | tail -n 1 || echo 'no summary'), $((SECONDS - begin)) s"
  [ "$status" = 0 ] || grep -vE '^ *$' "$log" | grep -m 8 -E '=========' || true
  rm -f "$log"
  return "$status"
}
export -f run
export test_gpu

command -v compute-sanitizer > /dev/null || fail "no compute-sanitizer: it comes with the CUDA toolkit"
[ -x "$test_gpu" ] || fail "no $test_gpu: ./dev gpu-test builds it"
chosen=$(runs | grep -E -- "$pattern") || fail "no run matches $pattern; a run is a line such as: racecheck sm90_d128_bf16 [rows]"
# Each line is one argument, of which the tests are all from the third word on.
xargs -P "$jobs" -d '\n' -n 1 bash -c 'read -r tool kernels tests <<< "$0"; run "$tool" "$kernels" "$tests"' <<< "$chosen" || exit 1
