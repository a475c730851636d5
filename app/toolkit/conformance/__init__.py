"""What every environment must do, whoever wrote it: checks that the tests and `atropos-envs envs check` share."""
