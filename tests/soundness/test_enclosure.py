"""Every domain encloses the truth on every neuron of random networks."""

from dataclasses import replace

import pytest
import torch
from bound_checks import How, encloses, encloses_exactly
from bound_domains import DOMAINS, WITHOUT_ROUNDING
from bound_truth import hard_points
from hypothesis import given, settings
from hypothesis import strategies as st
from random_nets import cases

from maar.domains import BOUNDS


@st.composite
def ways(draw):
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    rounding = dtype == torch.float32 and draw(st.booleans())
    return How(dtype, rounding, draw(st.booleans()), draw(st.booleans()))


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@settings(max_examples=16)
@given(case=cases(), how=ways())
def test_random_networks(domain, case, how):
    encloses(domain, case, how)


@pytest.mark.parametrize("domain", WITHOUT_ROUNDING, ids=repr)
@settings(max_examples=16)
@given(case=cases(), how=ways())
def test_random_networks_up_to_rounding(domain, case, how):
    encloses(domain, case, replace(how, rounding=False))


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@settings(max_examples=4)
@given(case=cases(most_images=1), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_random_networks_in_rational_numbers(domain, case, dtype):
    how = How(dtype, rounding=True, compiled=True)
    encloses_exactly(domain, case, how, hard_points(case)[:3])


def test_every_sound_bound_has_a_row():
    sound = {name for name in BOUNDS if BOUNDS[name].sound}
    rounded = {name for name in sound if hasattr(BOUNDS[name], "rounding")}
    assert {domain.name.split()[0] for domain in DOMAINS} == rounded
    assert {domain.name.split()[0] for domain in WITHOUT_ROUNDING} == sound - rounded
