#!/usr/bin/env bash
# compute-sanitizer over the GPU tests: memcheck and racecheck of every kernel in [rows], of walks of many steps, and of
# plans that are reordered; or the tests and tools that are asked for.
#
#     sanitize.sh [options] <test_gpu> [<runs side by side> [<pattern of runs>]]
#
#     --groups masks,layouts    these groups of tests instead, [rows] split by head dim and type, others by architecture
#     --tools synccheck         these tools instead: memcheck, racecheck, synccheck
#     --list                    only print the runs; needs no GPU and no program
#
# A run is a line `tool kernels tests`, such as `racecheck sm90_d128_bf16 [rows]`; `all` are all kernels. What a table
# chooses for a test's problem runs whichever kernels are named. Prints what each found; exits with 1 if one found
# anything or failed. All of them take hours of one core; sm89's kernels are sm86's.
set -euo pipefail

known_tools=(memcheck racecheck synccheck)
known_groups=(rows masks compact-masks layouts schedule varlen gqa items pieces bias tile-bias softcap window strides shapes ends deterministic)

fail() {
  echo "sanitize.sh: $1" >&2
  exit 2
}

# chosen <what they are> <list with commas> <known ones>: prints the words of the list, which must be known.
chosen() {
  local what=$1 word words known
  IFS=, read -r -a words <<< "$2"
  [ ${#words[@]} -gt 0 ] || fail "--${what}s needs a list, such as --${what}s $3,$4"
  for word in "${words[@]}"; do
    for known in "${@:3}"; do [ "$word" != "$known" ] || continue 2; done
    fail "\`$word\` is no $what: ${*:3}"
  done
  echo "${words[@]}"
}

tools="memcheck racecheck"
groups=
list=
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --tools) tools=$(chosen tool "${2:-}" "${known_tools[@]}") || exit 2; shift ;;
    --groups) groups=$(chosen group "${2:-}" "${known_groups[@]}") || exit 2; shift ;;
    --list) list=yes ;;
    --*) fail "\`$1\` is no option: --groups, --tools, --list" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[ ${#arguments[@]} -gt 0 ] || [ -n "$list" ] || fail "say which program: tests/gpu/sanitize.sh build/gpu/tests/gpu/test_gpu"
test_gpu=${arguments[0]:-}
jobs=${arguments[1]:-$(nproc)}
pattern=${arguments[2]:-.}

runs() {
  local tool group architecture head_dim type
  for tool in $tools; do
    if [ -z "$groups" ]; then
      echo "$tool all plans that the GPU reorders are those of the model"
      echo "$tool sm90_d128_bf16 sparse masks of long sequences"
    fi
    for group in ${groups:-rows}; do
      for architecture in sm90 sm80 sm86; do
        if [ "$group" != rows ]; then
          echo "$tool ${architecture}_ [$group]"
          continue
        fi
        for head_dim in 256 192 128 96 64 32; do
          for type in bf16 fp16; do echo "$tool ${architecture}_d${head_dim}_$type [rows]"; done
        done
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

chosen_runs=$(runs | grep -E -- "$pattern") || fail "no run matches $pattern; a run is a line such as: racecheck sm90_d128_bf16 [rows]"
if [ -n "$list" ]; then
  echo "$chosen_runs"
  exit
fi
command -v compute-sanitizer > /dev/null || fail "no compute-sanitizer: it comes with the CUDA toolkit"
[ -x "$test_gpu" ] || fail "no $test_gpu: ./dev gpu-test builds it"
# Each line is one argument, of which the tests are all from the third word on.
xargs -P "$jobs" -d '\n' -n 1 bash -c 'read -r tool kernels tests <<< "$0"; run "$tool" "$kernels" "$tests"' <<< "$chosen_runs" || exit 1
