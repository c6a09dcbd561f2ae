"""Sections of models for sweeps over trunks, positions and poolings."""

from sciformer.recipe.registry import find


def section(model, **values):
    """A section with those of the values that are keys of its trunk, position and pooling."""
    known = model.with_choices(values).model_fields
    return model(**{key: value for key, value in values.items() if key in known})


def model_keys(**values):
    """The same as a mapping, for a recipe."""
    known = find("model", values["kind"]).with_choices(values).model_fields
    return {key: value for key, value in values.items() if key in known}
