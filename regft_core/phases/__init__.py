"""The phases of a cell: search, finetune, evaluate. Each asks the run store first."""
