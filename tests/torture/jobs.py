"""The jobs under torture: of one rank, and of several that write each checkpoint together."""

import dataclasses

JOB = """schema: 1
model: {{type: gpt, config: {{n_layer: 1, n_head: 2, n_embd: 16, block_size: 8, dropout: 0.1}}}}
data: {{train: {{path: {text}, format: text}}, num_workers: 0}}
train: {{max_steps: {steps}, global_batch_size: 4}}
optimizer: {{type: adamw, lr: 3e-3}}
log: {{interval: 3}}
checkpoint: {{interval: 3, keep_last: {keep_last}}}
limits: {{max_attempts_without_progress: null}}
"""
SAVE_INTERVAL = 3


@dataclasses.dataclass(frozen=True)
class Job:
    steps: int = 150
    ranks: int = 1
    settings: dict = dataclasses.field(default_factory=dict)
    timeout_seconds: int = 60

    @property
    def is_launched(self) -> bool:
        return self.ranks > 1

    @property
    def for_lasting_errors(self) -> dict:
        """Settings for attempts in which all saves fail: each failure may take `parallel.timeout`."""
        return {"checkpoint.max_save_failures": 1} if self.is_launched else {}

    @property
    def names_of_ranks(self) -> list[str]:
        """As the preloaded library calls them."""
        return [str(rank) for rank in range(self.ranks)] if self.is_launched else ["-"]

    @property
    def victims(self) -> list[str]:
        """Whom a kill may hit: all processes at once, or one."""
        return ["all", "launcher", *self.names_of_ranks] if self.is_launched else ["all"]

    def text(self, text_path, keep_last: int) -> str:
        return JOB.format(text=text_path, steps=self.steps, keep_last=keep_last)

    def command(self, binary, file, output, settings: dict) -> list:
        launch = ["launch", "--nproc-per-node", str(self.ranks), "--max-restarts", "0"] if self.is_launched else []
        command = [binary, *launch, "run", file, "--output-dir", output]
        for name, value in {**self.settings, **settings}.items():
            command += ["--set", f"{name}={value}"]
        return command


def of_four_ranks(**parallel) -> Job:
    """`parallel.timeout` is how long rank 0 waits for the file of a rank that cannot even say that it failed. Shorter,
    it ends healthy jobs on a busy machine."""
    settings = {"model.config.n_layer": 2, "parallel.timeout": "30s"}
    settings |= {f"parallel.{name}": value for name, value in parallel.items()}
    if "tensor" in parallel:  # its ranks would draw different dropout
        settings["model.config.dropout"] = 0.0
    if "pipeline" in parallel:
        settings |= {"train.micro_batch_size": 1, "train.gradient_accumulation_steps": 2}
    return Job(steps=60, ranks=4, settings=settings, timeout_seconds=180)


ONE_RANK = Job()
MESHES = {
    "parameters-x-tensor": of_four_ranks(shard="parameters", tensor=2),
    "pipeline-x-optimizer": of_four_ranks(shard="optimizer", pipeline=2),
}
