"""Runs the model of the commit, docs/model/commit.qnt."""
