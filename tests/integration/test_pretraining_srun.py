"""Tasks of one srun, each a rank: processes with Slurm's variables and none of torchrun's."""

import torch

import pretraining_processes as processes
from ports import free_port
from pretraining_inputs import pretrain_job, write_inputs
from tiny import load_pretraining_model


def test_tasks_of_srun_train_as_ranks_of_torchrun_do(tmp_path):
    write_inputs(tmp_path)
    changes = {"runtime__num_devices": 2}
    launched, slurm = tmp_path / "torchrun", tmp_path / "srun"
    processes.finish(*processes.start_ranks(tmp_path, [launched] * 2, {}))
    port = str(free_port())
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost", "MASTER_PORT": port}
    tasks = [
        processes.start(
            tmp_path, slurm, changes, environment={**step, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)}
        )
        for task in range(2)
    ]
    processes.finish(*tasks)
    expected, found = (
        load_pretraining_model(pretrain_job(tmp_path, folder).result_folder).state_dict()
        for folder in (launched, slurm)
    )
    for name in expected:
        assert torch.equal(expected[name], found[name]), name
