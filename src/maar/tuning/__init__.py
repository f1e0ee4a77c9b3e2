"""Search for the knobs of a recipe on validation images, with Optuna.

One process of its own trains and certifies each trial; the study alone writes the database. Only
`maar tune` calls this. A trial gets a data set without test images, so that none can be looked at.
"""
