"""The paper's tables and figures as data, and what runs them: `maar reproduce`.

    NAME.toml        an experiment: its rows, each a recipe with flags, and what is measured on them
    settings.toml    data set, eps and network that a row is for, such as mnist-0.1
    profiles.toml    how much is spent: smoke, cpu, paper
    published.toml   numbers that others published, with their source

    tables -> plan -> work -> results

`tables` reads the files, `plan` makes runs and tasks of them, `work` has the tasks done by other
processes, `results` puts our numbers beside the published ones. What a run has already and what it
says is read from its folder (`measured`), so that an interrupted experiment continues and
experiments share their runs. Importing this package costs no torch.
"""
