/* A C11 program that uses the library: lists, select and explain for a GPU that need not be here, an error with its
 * message, a plan, hooks and counters, and a backward on the CPU whose gradients are known. Exits with 0 if everything
 * is as it should be. */
#include <flashdma_bwd/flashdma_bwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                               \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      fprintf(stderr, "%s:%d: %s\n%s\n", __FILE__, __LINE__, #condition, flashdma_bwd_last_message()); \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)

enum { HEAD_DIM = 8, BF16_ONE = 0x3f80, BF16_TWO = 0x4000 };

static void check_lists(void) {
  size_t i;
  const size_t count = flashdma_bwd_kernel_count();
  for (i = 0; i < count; ++i) CHECK(strncmp(flashdma_bwd_kernel_name(i), "bwd_sm", 6) == 0);
  CHECK(flashdma_bwd_kernel_name(count) == NULL);
  for (i = 0; flashdma_bwd_architecture_name(i) != NULL; ++i) CHECK(strlen(flashdma_bwd_architecture_name(i)) > 0);
  CHECK((i == 0) == (count == 0));
  printf("flashdma_bwd %s, tables %s, %zu kernels\n", flashdma_bwd_version(), flashdma_bwd_table_hash(), count);
}

static void check_selection(void) {
  flashdma_bwd_arguments arguments;
  flashdma_bwd_selection selection = {.struct_size = sizeof(flashdma_bwd_selection)};
  const flashdma_bwd_device h100 = {.compute_capability = 90, .sm_count = 132, .shared_memory_per_block = 232448};
  flashdma_bwd_code code;
  size_t length;
  char* text;

  flashdma_bwd_arguments_init(&arguments);
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = 1;
  arguments.heads = arguments.heads_kv = 8;
  arguments.head_dim = 128;
  arguments.seqlen_q = arguments.seqlen_k = 1024;

  code = flashdma_bwd_select(&arguments, &h100, &selection);
  if (code == FLASHDMA_BWD_OK)
    CHECK(strncmp(selection.kernel, "bwd_sm", 6) == 0 && selection.compute_capability == 90);
  else
    CHECK(strlen(flashdma_bwd_last_message()) > 0);
  length = flashdma_bwd_explain(&arguments, &h100, NULL, 0);
  text = malloc(length + 1);
  CHECK(text != NULL);
  CHECK(flashdma_bwd_explain(&arguments, &h100, text, length + 1) == length && strlen(text) == length);
  CHECK(strstr(text, "compute capability 9.0") != NULL);
  free(text);

  arguments.head_dim = 100;
  CHECK(flashdma_bwd_select(&arguments, &h100, &selection) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(strstr(flashdma_bwd_last_message(), "head_dim is 100") != NULL);
}

/* A plan is sized, refused where there is no room for it, and told of: nothing of it needs a GPU. The struct stands for
 * one that flashdma_bwd_plan_build has filled. */
static void check_plan(void) {
  static _Alignas(256) unsigned char memory[4096]; /* in place of device memory, which nothing here reads */
  static const unsigned char mask = 1;
  const flashdma_bwd_device h100 = {.compute_capability = 90, .sm_count = 132, .shared_memory_per_block = 232448};
  const flashdma_bwd_key_order orders[2] = {{100, 0, 4, 3}, {128, 1, 2, 2}};
  flashdma_bwd_arguments arguments;
  flashdma_bwd_mask_plan plan;
  flashdma_bwd_schedule schedule;
  flashdma_bwd_plan_parts parts = {.struct_size = sizeof parts};
  flashdma_bwd_plan_summary summary = {.struct_size = sizeof summary};
  flashdma_bwd_selection selection = {.struct_size = sizeof selection};
  flashdma_bwd_code code;
  size_t bytes = 0;

  flashdma_bwd_arguments_init(&arguments);
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = 1;
  arguments.heads = arguments.heads_kv = 2;
  arguments.head_dim = 64;
  arguments.seqlen_q = arguments.seqlen_k = 128;
  arguments.mask.data = (void*)&mask;
  arguments.mask.batch = 1;
  arguments.mask.heads = 2;
  arguments.mask.rows = arguments.mask.columns = 128;
  arguments.mask.stride_column = 1;
  arguments.mask.stride_row = 128;
  arguments.mask.stride_head = 128 * 128;
  CHECK(flashdma_bwd_plan_size(&arguments, &bytes) == FLASHDMA_BWD_OK);
  CHECK(bytes == (2 * (128 * 128 / 8 + 4) + 255) / 256 * 256); /* as the header has it */
  CHECK(flashdma_bwd_plan_build(&arguments, memory, bytes - 1, NULL, &plan) == FLASHDMA_BWD_WORKSPACE_TOO_SMALL);

  plan = (flashdma_bwd_mask_plan){.struct_size = sizeof plan,
                                  .layout = FLASHDMA_BWD_LAYOUT_NATURAL,
                                  .batch = 1,
                                  .heads = 2,
                                  .seqlen_q = 128,
                                  .seqlen_k = 128,
                                  .memory = memory,
                                  .bytes = bytes,
                                  .lowest_offset = -(1 << 30),
                                  .highest_offset = 1 << 30,
                                  .rows = 128};
  CHECK(flashdma_bwd_plan_view(&plan, &parts) == FLASHDMA_BWD_OK);
  CHECK(parts.query_atoms == 2 && parts.key_atoms == 2 && parts.keys == NULL);
  CHECK((const unsigned char*)parts.words == memory && parts.classes == memory + 2 * 128 * 128 / 8);
  arguments.plan = &plan;
  code = flashdma_bwd_select(&arguments, &h100, &selection);
  CHECK(code != FLASHDMA_BWD_INVALID_ARGUMENT);
  if (code == FLASHDMA_BWD_OK) CHECK(selection.layout == FLASHDMA_BWD_LAYOUT_NATURAL);

  /* A schedule is of one building of a plan, and is made of a plan. */
  schedule = (flashdma_bwd_schedule){.struct_size = sizeof schedule, .building = plan.building + 1};
  arguments.schedule = &schedule;
  CHECK(flashdma_bwd_select(&arguments, &h100, &selection) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(strstr(flashdma_bwd_last_message(), "another building of a plan") != NULL);
  arguments.schedule = NULL;
  arguments.plan = NULL;
  CHECK(flashdma_bwd_schedule_build(&arguments, memory, sizeof memory, NULL, &schedule) ==
        FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(strstr(flashdma_bwd_last_message(), "a schedule is made of a plan") != NULL);
  arguments.plan = &plan;
  CHECK(flashdma_bwd_plan_summarize(&plan, orders, &summary) == FLASHDMA_BWD_UNSUPPORTED);
  plan.layout = FLASHDMA_BWD_LAYOUT_REORDERED;
  plan.bytes = 1 << 20;
  CHECK(flashdma_bwd_plan_summarize(&plan, orders, &summary) == FLASHDMA_BWD_INVALID_ARGUMENT); /* there are 2 tiles */
  CHECK(strstr(flashdma_bwd_last_message(), "orders[0].natural_tiles is 4") != NULL);
  plan.seqlen_q = 256;
  CHECK(flashdma_bwd_plan_summarize(&plan, orders, &summary) == FLASHDMA_BWD_OK);
  CHECK(summary.masks == 2 && summary.reordered_masks == 1 && summary.keys == 228 && summary.all_tiles == 8);
  CHECK(summary.natural_tiles == 6 && summary.predicted_tiles == 5);
}

static void count_report(const flashdma_bwd_call_report* report, void* user) {
  CHECK(report->struct_size >= sizeof *report && strlen(report->problem) > 0 && strlen(report->kernel) > 0);
  ++*(int*)user;
}

static void check_monitoring(void) {
  int reports = 0;
  size_t i;
  flashdma_bwd_hooks hooks = {.struct_size = sizeof hooks, .before = count_report, .after = NULL, .user = &reports};
  flashdma_bwd_counters counters = {.struct_size = sizeof counters};
  flashdma_bwd_kernel_counters kernel = {.struct_size = sizeof kernel};

  CHECK(flashdma_bwd_set_hooks(&hooks) == FLASHDMA_BWD_OK);
  CHECK(flashdma_bwd_set_monitoring(FLASHDMA_BWD_MONITOR_COUNTERS | FLASHDMA_BWD_MONITOR_NVTX) == FLASHDMA_BWD_OK);
  CHECK(flashdma_bwd_monitoring() == (FLASHDMA_BWD_MONITOR_COUNTERS | FLASHDMA_BWD_MONITOR_NVTX));
  CHECK(flashdma_bwd_read_counters(&counters) == FLASHDMA_BWD_OK);
  CHECK(counters.calls == 0 && counters.tier_calls[FLASHDMA_BWD_TIERS - 1] == 0 && counters.milliseconds == 0);
  for (i = 0; i < flashdma_bwd_kernel_count(); ++i)
    CHECK(flashdma_bwd_read_kernel_counters(i, &kernel) == FLASHDMA_BWD_OK && kernel.calls == 0);
  CHECK(flashdma_bwd_read_kernel_counters(i, &kernel) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(flashdma_bwd_reset_counters() == FLASHDMA_BWD_OK);
  counters.struct_size = 0;
  CHECK(flashdma_bwd_read_counters(&counters) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(flashdma_bwd_set_monitoring(1u << 30) == FLASHDMA_BWD_INVALID_ARGUMENT);
  hooks.struct_size = 0;
  CHECK(flashdma_bwd_set_hooks(&hooks) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(strstr(flashdma_bwd_last_message(), "hooks.struct_size is 0") != NULL);
  CHECK(flashdma_bwd_set_monitoring(0) == FLASHDMA_BWD_OK);
  CHECK(flashdma_bwd_set_hooks(NULL) == FLASHDMA_BWD_OK);
  CHECK(reports == 0); /* nothing was launched */
}

static void check_tuning(void) {
  const flashdma_bwd_device h100 = {90, 132, 232448};
  flashdma_bwd_tuning tuning;
  flashdma_bwd_tuning_state state = {.struct_size = sizeof state};

  flashdma_bwd_tuning_init(&tuning);
  tuning.mode = FLASHDMA_BWD_TUNE_READ_ONLY;
  CHECK(flashdma_bwd_set_tuning(&tuning) == FLASHDMA_BWD_INVALID_ARGUMENT); /* there is no cache to read */
  tuning.mode = FLASHDMA_BWD_TUNE_FIRST_USE;
  tuning.budget_ms = 100;
  CHECK(flashdma_bwd_set_tuning(&tuning) == FLASHDMA_BWD_OK);
  CHECK(flashdma_bwd_freeze_tuning() == FLASHDMA_BWD_OK);
  CHECK(flashdma_bwd_get_tuning(&h100, &state) == FLASHDMA_BWD_OK);
  CHECK(state.mode == FLASHDMA_BWD_TUNE_FIRST_USE && state.frozen == 1 && state.choices == 0);
  CHECK(strlen(state.hash) == 16);
  flashdma_bwd_tuning_init(&tuning);
  CHECK(flashdma_bwd_set_tuning(&tuning) == FLASHDMA_BWD_OK);
}

/* One query and one key: P = 1, so that dV = dO, and dS = 0 because O = V. */
static void check_backward(void) {
  static _Alignas(16) uint16_t q[HEAD_DIM], k[HEAD_DIM], v[HEAD_DIM], out[HEAD_DIM], d_out[HEAD_DIM];
  static _Alignas(16) uint16_t d_q[HEAD_DIM], d_k[HEAD_DIM], d_v[HEAD_DIM];
  static float lse = 0; /* of the score q . k = 0 */
  flashdma_bwd_arguments arguments;
  int i;

  for (i = 0; i < HEAD_DIM; ++i) {
    k[i] = BF16_ONE;
    v[i] = out[i] = BF16_TWO;
    d_out[i] = i % 2 == 0 ? BF16_ONE : BF16_TWO;
    d_q[i] = d_k[i] = d_v[i] = 0xffff;
  }
  flashdma_bwd_arguments_init(&arguments);
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.head_dim = HEAD_DIM;
  arguments.batch = arguments.heads = arguments.heads_kv = arguments.seqlen_q = arguments.seqlen_k = 1;
  arguments.q.data = q;
  arguments.k.data = k;
  arguments.v.data = v;
  arguments.out.data = out;
  arguments.d_out.data = d_out;
  arguments.lse = &lse;
  arguments.d_q.data = d_q;
  arguments.d_k.data = d_k;
  arguments.d_v.data = d_v;
  CHECK(flashdma_bwd_backward_reference(&arguments, 1) == FLASHDMA_BWD_OK);
  for (i = 0; i < HEAD_DIM; ++i) {
    CHECK(d_v[i] == d_out[i]);
    CHECK((d_q[i] & 0x7fff) == 0 && (d_k[i] & 0x7fff) == 0);
  }
}

int main(void) {
  check_lists();
  check_selection();
  check_plan();
  check_monitoring();
  check_tuning();
  check_backward();
  puts("C ABI: fine");
  return 0;
}
