"""`regft fit` and `regft init`: from one file of rows to a project, a set-up for the minutes, and a model."""
