// The table of this library's subcommands, the only one of our symbols that is exported.
#include "gputrain/config/schema.hpp"
#include "gputrain/job/commands.hpp"

extern "C" __attribute__((visibility("default"))) const gputrain::app::Verbs gputrain_verbs;

const gputrain::app::Verbs gputrain_verbs{
    .check = gputrain::config::refuse_wrong_registrations,
    .run = gputrain::app::run_command,
    .eval = gputrain::app::eval_command,
    .generate = gputrain::app::generate_command,
    .predict = gputrain::app::predict_command,
    .embed = gputrain::app::embed_command,
    .export_model = gputrain::app::export_command,
    .fetch = gputrain::app::fetch_command,
    .doctor = gputrain::app::doctor_command,
    .replay = gputrain::app::replay_command,
    .bench_train = gputrain::app::bench_train_command,
    .bench_one = gputrain::app::bench_one_command,
    .bench_comm = gputrain::app::bench_comm_command,
    .bench_matmul = gputrain::app::bench_matmul_command,
    .bench_memory = gputrain::app::bench_memory_command,
    .bench_disk = gputrain::app::bench_disk_command,
    .bench_data = gputrain::app::bench_data_command,
    .validate = gputrain::app::validate_command,
    .config = gputrain::app::config_command,
    .schema = gputrain::app::schema_command,
    .list = gputrain::app::list_command,
    .describe = gputrain::app::describe_command,
    .audit = gputrain::app::audit_command,
    .tokenize = gputrain::app::tokenize_command,
    .ctl = gputrain::app::ctl_command,
    .top = gputrain::app::top_command,
    .compare = gputrain::app::compare_command,
    .data_show = gputrain::app::data_show_command,
    .version = gputrain::app::version_command,
    .profile = gputrain::app::profile_command,
    .plan = gputrain::app::plan_command,
    .sweep = gputrain::app::sweep_command,
    .ckpt_ls = gputrain::app::ckpt_ls_command,
    .ckpt_verify = gputrain::app::ckpt_verify_command,
    .ckpt_diff = gputrain::app::ckpt_diff_command,
    .ckpt_prune = gputrain::app::ckpt_prune_command,
};
